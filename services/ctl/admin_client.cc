#include "services/ctl/admin_client.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace stria {
namespace {

using nlohmann::json;

// The message of an error in OpenAI's form, or what there is.
std::string MessageOf(const HttpReply& reply) {
  const json body = json::parse(reply.body, nullptr, false);
  if (body.is_object() && body.contains("error") && body["error"].is_object()) {
    const json& message = body["error"].value("message", json());
    if (message.is_string()) return message.get<std::string>();
  }
  return absl::StrCat("HTTP status ", reply.status);
}

Failure FailureOf(const HttpReply& reply) {
  switch (reply.status) {
    case 401:
    case 403: return {kExitDenied, MessageOf(reply)};
    case 409: return {kExitConflict, MessageOf(reply)};
    default: return {reply.status < 500 ? kExitUsage : kExitController, MessageOf(reply)};
  }
}

}  // namespace

absl::StatusOr<AdminClient> AdminClient::Create(const std::string& url, double timeout_seconds, const std::string& token) {
  absl::StatusOr<std::unique_ptr<HttpClient>> http = HttpClient::Create(url, timeout_seconds);
  if (!http.ok()) return http.status();
  HttpHeaders headers;
  if (!token.empty()) headers.emplace_back("Authorization", "Bearer " + token);
  return AdminClient(url, *std::move(http), std::move(headers));
}

Failure AdminClient::Away(const absl::Status& status) const {
  return {kExitAway, absl::StrCat("no controller answers at ", url_, " (", std::string(status.message()), ")")};
}

Result<json> AdminClient::Call(std::string_view method, std::string_view target, const std::string& body) {
  const absl::StatusOr<HttpReply> reply = http_->Request(method, target, body, headers_);
  if (!reply.ok()) return Away(reply.status());
  if (reply->status != 200) return FailureOf(*reply);
  json answer = json::parse(reply->body, nullptr, false);
  if (answer.is_discarded()) return Failure{kExitController, absl::StrCat(url_, " answers, but not as a controller does")};
  return answer;
}

Result<std::monostate> AdminClient::Follow(std::string_view target,
                                           const std::function<bool(const std::string&, const json&)>& on_event) {
  EventParser parser;
  bool stopped = false;
  const auto on_piece = [&](std::string_view piece) {
    stopped = !parser.Feed(piece, [&](const std::string& name, const std::string& data) {
      const json value = json::parse(data, nullptr, false);
      return value.is_discarded() || on_event(name, value);
    });
    return !stopped;
  };
  const absl::StatusOr<HttpReply> reply = http_->Stream("GET", target, "", headers_, on_piece);
  if (stopped) return std::monostate{};
  if (!reply.ok()) return Away(reply.status());
  if (reply->status != 200) return FailureOf(*reply);
  return Failure{kExitAway, absl::StrCat("the controller at ", url_, " went away")};
}

bool EventParser::Feed(std::string_view piece, const OnEvent& on_event) {
  buffer_ += piece;
  size_t begin = 0;
  for (size_t end; (end = buffer_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(buffer_).substr(begin, end - begin);
    if (line.starts_with("event: ")) {
      name_ = line.substr(7);
    } else if (line.starts_with("data: ")) {
      data_ += line.substr(6);
    } else if (line.empty() && !data_.empty()) {
      const std::string name = std::exchange(name_, ""), data = std::exchange(data_, "");
      if (!on_event(name, data)) return false;
    }
  }
  buffer_.erase(0, begin);
  return true;
}

}  // namespace stria
