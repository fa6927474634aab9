#include "services/common/access.h"

#include <algorithm>
#include <utility>

#include <boost/asio/ip/address.hpp>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stria {

absl::StatusOr<TokenTable> TokenTable::Parse(std::string_view text) {
  TokenTable table;
  STRIA_RETURN_IF_ERROR(ForEachSecretLine(text, kNoun, [&](const std::vector<std::string>& words) -> absl::Status {
    if (words.size() != 3) return absl::InvalidArgumentError(absl::StrCat(words.size(), " words; a line is ROLE NAME TOKEN"));
    if (words[0] != "operator" && words[0] != "viewer") {
      return absl::InvalidArgumentError("the role must be viewer or operator");  // not quoted: the token may stand in the wrong place
    }
    const Role role = words[0] == "operator" ? Role::kOperator : Role::kViewer;
    const auto [entry, is_new] = table.roles_.emplace(words[1], role);
    if (!is_new && entry->second != role) return absl::InvalidArgumentError(absl::StrCat(words[1], " has another role above"));
    return table.secrets_.Add(words[2], words[1]);
  }));
  return table;
}

absl::StatusOr<TokenTable> TokenTable::Load(const std::string& path, const char* variable) {
  return LoadSecrets<TokenTable>(path, variable, kNoun, &TokenTable::Parse);
}

absl::StatusOr<Caller> TokenTable::Identify(std::string_view authorization) const {
  STRIA_ASSIGN_OR_RETURN(const std::string name, secrets_.OwnerOf(authorization));
  return Caller{name, roles_.at(name)};
}

bool IsOpenPath(std::string_view path) {
  for (const char* open : {"/health", "/ready", "/live", "/metrics"}) {
    if (path == open) return true;
  }
  return false;
}

HttpGuard TokenGuard(const TokenTable& tokens, std::vector<std::string> readings) {
  return [&tokens, readings = std::move(readings)](const HttpRequest& request) -> absl::Status {
    if (tokens.empty() || IsOpenPath(request.path)) return absl::OkStatus();
    STRIA_ASSIGN_OR_RETURN(const Caller caller, tokens.Identify(request.authorization));
    const bool reads = request.method == "GET" || request.method == "HEAD" || request.method == "OPTIONS" ||
                       std::find(readings.begin(), readings.end(), request.path) != readings.end();
    if (reads || caller.role == Role::kOperator) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat(caller.name, " is a viewer: ", request.method, " ", request.path, " needs an operator"));
  };
}

absl::Status CheckHttpBind(const std::string& bind, bool has_secrets, bool insecure, std::string_view secrets_flag) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(bind, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("--bind ", bind, ": not an IP address"));
  if (address.is_loopback() || insecure || has_secrets) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("--bind ", bind, " is off loopback: needs ",
                                                  absl::string_view(secrets_flag.data(), secrets_flag.size()), ", or --insecure"));
}

}  // namespace stria
