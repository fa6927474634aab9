#include "services/controller/change_request.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "services/controller/state_json.h"

namespace stria {
namespace {

using nlohmann::json;

constexpr size_t kMaxWho = 256, kMaxReason = 2000;

absl::Status TakeText(json& body, const char* name, size_t max_bytes, std::string& text) {
  if (!body.contains(name)) return absl::OkStatus();
  if (!body[name].is_string()) return absl::InvalidArgumentError(absl::StrCat(name, " must be a string"));
  text = body[name].get<std::string>();
  body.erase(name);
  if (text.size() <= max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " has ", text.size(), " bytes; at most ", max_bytes, " are kept"));
}

absl::Status TakeFlag(json& body, const char* name, bool& flag) {
  if (!body.contains(name)) return absl::OkStatus();
  if (!body[name].is_boolean()) return absl::InvalidArgumentError(absl::StrCat(name, " must be true or false"));
  flag = body[name].get<bool>();
  body.erase(name);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChangeRequest> ParseChange(const std::string& text) {
  json body = text.empty() ? json::object() : json::parse(text, nullptr, false);
  if (!body.is_object()) return absl::InvalidArgumentError("the body must be a JSON object");
  ChangeRequest change;
  STRIA_RETURN_IF_ERROR(TakeText(body, "who", kMaxWho, change.who));
  STRIA_RETURN_IF_ERROR(TakeText(body, "reason", kMaxReason, change.reason));
  STRIA_RETURN_IF_ERROR(TakeFlag(body, "dry_run", change.dry_run));
  STRIA_RETURN_IF_ERROR(TakeFlag(body, "replace", change.replace));
  if (body.contains("check_revision")) {
    if (!body["check_revision"].is_number_unsigned()) {
      return absl::InvalidArgumentError("check_revision must be a revision's number");
    }
    change.check_revision = body["check_revision"].get<uint64_t>();
    body.erase("check_revision");
  }
  change.settings = std::move(body);
  return change;
}

absl::StatusOr<Settings> Apply(const ChangeRequest& change, const Settings& base) {
  if (!change.replace) return SettingsFromJson(change.settings, base);
  json kept = ToJson(base);
  for (const auto& [name, value] : change.settings.items()) kept.erase(name);
  STRIA_ASSIGN_OR_RETURN(const Settings start, SettingsFromJson(kept, Settings{}));
  return SettingsFromJson(change.settings, start);
}

}  // namespace stria
