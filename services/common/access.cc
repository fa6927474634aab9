#include "services/common/access.h"

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

absl::StatusOr<TokenTable> TokenTable::ReadFile(const std::string& path) { return ReadSecretsFile<TokenTable>(path, kNoun, &TokenTable::Parse); }

absl::StatusOr<Caller> TokenTable::Identify(std::string_view authorization) const {
  STRIA_ASSIGN_OR_RETURN(const std::string name, secrets_.OwnerOf(authorization));
  return Caller{name, roles_.at(name)};
}

}  // namespace stria
