#include "services/ctl/commands.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/ctl/render.h"
#include "services/ctl/table.h"

namespace stria {
namespace {

using nlohmann::json;

json BodyOf(const ChangeFlags& flags) {
  json body = {{"who", flags.who}, {"reason", flags.reason}};
  if (flags.check_revision.has_value()) body["check_revision"] = *flags.check_revision;
  if (flags.dry_run) body["dry_run"] = true;
  return body;
}

std::string Compact(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string PercentEncode(const std::string& text) {
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      encoded += c;
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

}  // namespace

absl::StatusOr<json> ParseValue(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  int64_t whole = 0;
  if (absl::SimpleAtoi(text, &whole)) return whole;
  double value = 0, divisor = 1;
  const size_t slash = text.find('/');
  const bool parsed = absl::SimpleAtod(text.substr(0, slash), &value) &&
                      (slash == std::string::npos || absl::SimpleAtod(text.substr(slash + 1), &divisor));
  value /= divisor;
  if (!parsed || !std::isfinite(value)) return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a number"));
  return value;
}

void Commands::Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

int Commands::Fail(const Failure& failure) {
  std::fprintf(error_, "striactl: %s\n", Printable(failure.message).c_str());
  return failure.code;
}

int Commands::Show(const Result<json>& answer, Render render) {
  if (const auto* failure = std::get_if<Failure>(&answer)) return Fail(*failure);
  const json& value = std::get<json>(answer);
  Print(style_.json ? value.dump(2, ' ', false, json::error_handler_t::replace) + "\n" : render(value, style_.colour));
  return kExitOk;
}

int Commands::Status() {
  const Result<json> answer = client_.Get("/v1/status");
  if (const int code = Show(answer, &RenderStatus); code != kExitOk) return code;
  return AllSynced(std::get<json>(answer)) ? kExitOk : kExitDiffers;
}

int Commands::Tiers(const std::string& model) {
  return Show(client_.Get(model.empty() ? "/v1/tiers" : "/v1/tiers?model=" + PercentEncode(model)), &RenderTiers);
}

int Commands::ShowSettings() { return Show(client_.Get("/v1/settings"), &RenderSettings); }

int Commands::GetSetting(const std::string& name) {
  const Result<json> answer = client_.Get("/v1/settings");
  if (const auto* failure = std::get_if<Failure>(&answer)) return Fail(*failure);
  const json& settings = std::get<json>(answer);
  const json value = settings.value("settings", json::object()).value(name, json());
  if (value.is_null()) return Fail({kExitUsage, absl::StrCat("no setting is called '", name, "'")});
  Print(style_.json ? Compact({{name, value}, {"revision", settings.value("revision", 0)}}) + "\n" : value.dump() + "\n");
  return kExitOk;
}

int Commands::ShowChange(const Result<json>& answer) {
  if (const auto* failure = std::get_if<Failure>(&answer)) return Fail(*failure);
  const json& revision = std::get<json>(answer);
  Print((style_.json ? Compact(revision) : RenderRevision(revision)) + "\n");
  return kExitOk;
}

int Commands::SetSetting(const std::string& name, const std::string& text, const ChangeFlags& flags) {
  const absl::StatusOr<json> value = ParseValue(text);
  if (!value.ok()) return Fail({kExitUsage, absl::StrCat(name, ": ", value.status().message())});
  json body = BodyOf(flags);
  body[name] = *value;
  return ShowChange(client_.Call("PUT", "/v1/settings", Compact(body)));
}

int Commands::Freeze(bool frozen, const ChangeFlags& flags) {
  return ShowChange(client_.Call("POST", frozen ? "/v1/freeze" : "/v1/thaw", Compact(BodyOf(flags))));
}

int Commands::History(uint64_t from, uint64_t limit) {
  Result<json> answer = client_.Get(absl::StrCat("/v1/history?from=", from, "&limit=", limit));
  if (json* history = std::get_if<json>(&answer); history != nullptr && style_.json) {
    answer = json(history->value("revisions", json::array()));
  }
  return Show(answer, &RenderHistory);
}

int Commands::Flips(uint64_t limit) {
  Result<json> answer = client_.Get(absl::StrCat("/v1/flips?limit=", limit));
  if (json* flips = std::get_if<json>(&answer); flips != nullptr && style_.json) {
    answer = json(flips->value("flips", json::array()));
  }
  return Show(answer, &RenderFlips);
}

int Commands::Watch(std::optional<uint64_t> from, bool firings) {
  std::string target = absl::StrCat("/v1/watch?firings=", firings ? "true" : "false");
  if (from.has_value()) absl::StrAppend(&target, "&from=", *from);
  const auto ended = client_.Follow(target, [&](const std::string& name, const json& data) {
    Print((style_.json ? Compact({{"event", name}, {"data", data}}) : RenderEvent(name, data)) + "\n");
    return std::ferror(out_) == 0;
  });
  const auto* failure = std::get_if<Failure>(&ended);
  return failure == nullptr ? kExitOk : Fail(*failure);
}

}  // namespace stria
