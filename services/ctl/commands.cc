#include "services/ctl/commands.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/ctl/document.h"
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

json ParseValue(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  int64_t whole = 0;
  if (absl::SimpleAtoi(text, &whole)) return whole;
  double value = 0, divisor = 1;
  const size_t slash = text.find('/');
  const bool parsed = absl::SimpleAtod(text.substr(0, slash), &value) &&
                      (slash == std::string::npos || absl::SimpleAtod(text.substr(slash + 1), &divisor));
  value /= divisor;
  return parsed && std::isfinite(value) ? json(value) : json(text);
}

void Commands::Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fflush(out_);
}

void Commands::PrintDocument(const json& value) {
  Print(style_.format == OutputFormat::kYaml ? ToYaml(value) : value.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

int Commands::Fail(const Failure& failure) {
  std::fprintf(error_, "striactl: %s\n", Printable(failure.message).c_str());
  return failure.code;
}

int Commands::Show(const Result<json>& answer, Render render) {
  if (const auto* failure = std::get_if<Failure>(&answer)) return Fail(*failure);
  const json& value = std::get<json>(answer);
  if (style_.format == OutputFormat::kTable) {
    Print(render(value, style_.colour));
  } else {
    PrintDocument(value);
  }
  return kExitOk;
}

int Commands::ShowList(Result<json> answer, const char* list, Render render) {
  json* object = std::get_if<json>(&answer);
  if (object != nullptr && style_.format != OutputFormat::kTable) answer = json(object->value(list, json::array()));
  return Show(answer, render);
}

int Commands::ShowChange(const Result<json>& answer) { return Show(answer, &RenderPlan); }

int Commands::ShowDifferences(const json& before, const json& after) {
  const json differences = Differences(before, after);
  Show(differences, &RenderDifferences);
  return differences.empty() ? kExitOk : kExitDiffers;
}

int Commands::Status() {
  const Result<json> answer = client_.Get("/v1/status");
  if (const int code = Show(answer, &RenderStatus); code != kExitOk) return code;
  return AllSynced(std::get<json>(answer)) ? kExitOk : kExitDiffers;
}

int Commands::Tiers(const std::string& model) {
  return Show(client_.Get(model.empty() ? "/v1/tiers" : "/v1/tiers?model=" + PercentEncode(model)), &RenderTiers);
}

int Commands::Target() { return Show(client_.Get("/v1/target"), &RenderTarget); }

int Commands::SetTarget(const std::string& wanted, const ChangeFlags& flags) {
  constexpr std::string_view kName = "kl=";
  const json value = ParseValue(wanted.substr(std::min(wanted.size(), kName.size())));
  if (!wanted.starts_with(kName) || !value.is_number() || value.get<double>() <= 0) {
    return Fail({kExitUsage, absl::StrCat("'", wanted, "' is not kl=NATS with a number above 0")});
  }
  return Change({{"target_kl", value}}, flags);
}

int Commands::TargetOff(bool keep, const ChangeFlags& flags) {
  json settings = {{"target_kl", 0}};
  if (!keep) return Change(std::move(settings), flags);
  const Result<json> answer = client_.Get("/v1/target?limit=0");
  if (const auto* failure = std::get_if<Failure>(&answer)) return Fail(*failure);
  const json& target = std::get<json>(answer);
  std::vector<json> moving;
  for (const json& model : target.value("models", json::array())) {
    if (model.value("moving", false)) moving.push_back(model);
  }
  if (moving.size() > 1) return Fail({kExitUsage, absl::StrCat("--keep: the target moves ", moving.size(), " models; pin a value with 'tau set' instead")});
  if (!moving.empty()) settings[target.value("moves", "tau")] = moving[0]["value"];
  return Change(std::move(settings), flags);
}

int Commands::ShowSettings() { return Show(client_.Get("/v1/settings"), &RenderSettings); }

int Commands::GetSetting(const std::string& name) {
  const Result<json> answer = client_.Get("/v1/settings");
  if (const auto* failure = std::get_if<Failure>(&answer)) return Fail(*failure);
  const json& settings = std::get<json>(answer);
  const json value = settings.value("settings", json::object()).value(name, json());
  if (value.is_null()) return Fail({kExitUsage, absl::StrCat("no setting is called '", name, "'")});
  if (style_.format == OutputFormat::kTable) {
    Print((value.is_string() ? value.get<std::string>() : Compact(value)) + "\n");
  } else {
    PrintDocument({{name, value}, {"revision", settings.value("revision", 0)}});
  }
  return kExitOk;
}

int Commands::Export() {
  return Show(client_.Get("/v1/settings"), [](const json& settings, bool) { return ToYaml(settings); });
}

int Commands::Change(json settings, const ChangeFlags& flags) {
  settings.update(BodyOf(flags));
  return ShowChange(client_.Call("PUT", "/v1/settings", Compact(settings)));
}

int Commands::Freeze(bool frozen, const ChangeFlags& flags) {
  return ShowChange(client_.Call("POST", frozen ? "/v1/freeze" : "/v1/thaw", Compact(BodyOf(flags))));
}

int Commands::Undo(std::optional<uint64_t> revision, const ChangeFlags& flags) {
  json body = BodyOf(flags);
  if (revision.has_value()) body["revision"] = *revision;
  return ShowChange(client_.Call("POST", "/v1/undo", Compact(body)));
}

Result<json> Commands::ReadSettings(const std::string& file) {
  std::string text;
  if (file == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else {
    std::ifstream stream(file);
    text.assign(std::istreambuf_iterator<char>(stream), {});
    if (!stream.good()) return Failure{kExitUsage, absl::StrCat("cannot read ", file)};
  }
  const absl::StatusOr<json> document = ParseDocument(text);
  if (!document.ok()) return Failure{kExitUsage, absl::StrCat(file, ": ", std::string(document.status().message()))};
  const json settings = document->is_object() && document->contains("settings") ? (*document)["settings"] : *document;
  if (!settings.is_object()) return Failure{kExitUsage, absl::StrCat(file, ": no settings by name")};
  return settings;
}

int Commands::Apply(const std::string& file, const ChangeFlags& flags) {
  Result<json> settings = ReadSettings(file);
  if (const auto* failure = std::get_if<Failure>(&settings)) return Fail(*failure);
  json body = std::get<json>(std::move(settings));
  body["replace"] = true;
  return Change(std::move(body), flags);
}

int Commands::Plan(const std::vector<std::string>& assignments, const std::string& file) {
  json body = json::object();
  if (!file.empty()) {
    Result<json> settings = ReadSettings(file);
    if (const auto* failure = std::get_if<Failure>(&settings)) return Fail(*failure);
    body = std::get<json>(std::move(settings));
    body["replace"] = true;
  }
  for (const std::string& assignment : assignments) {
    const size_t equals = assignment.find('=');
    if (equals == std::string::npos) return Fail({kExitUsage, absl::StrCat("'", assignment, "' is not NAME=VALUE")});
    body[assignment.substr(0, equals)] = ParseValue(assignment.substr(equals + 1));
  }
  return ShowChange(client_.Call("POST", "/v1/plan", Compact(body)));
}

int Commands::DiffFile(const std::string& file) {
  Result<json> settings = ReadSettings(file);
  if (const auto* failure = std::get_if<Failure>(&settings)) return Fail(*failure);
  json body = std::get<json>(std::move(settings));
  body["replace"] = true;
  const Result<json> answer = client_.Call("POST", "/v1/plan", Compact(body));
  if (const auto* failure = std::get_if<Failure>(&answer)) return Fail(*failure);
  const json& plan = std::get<json>(answer);
  return ShowDifferences(plan.value("before", json::object()), plan.value("after", json::object()));
}

Result<json> Commands::SettingsAfter(std::optional<uint64_t> revision) {
  Result<json> now = client_.Get("/v1/settings");
  const json* answer = std::get_if<json>(&now);
  if (answer == nullptr) return now;
  const bool never_changed = answer->value("revision", uint64_t{0}) == 0;
  if (!revision.has_value() || (*revision == 0 && never_changed)) return json(answer->value("settings", json::object()));
  const bool beginning = *revision == 0;
  Result<json> found = client_.Get(absl::StrCat("/v1/history/", beginning ? 1 : *revision));
  const json* record = std::get_if<json>(&found);
  if (record == nullptr) return found;
  return json(record->value(beginning ? "before" : "after", json::object()));
}

int Commands::DiffRevisions(uint64_t from, std::optional<uint64_t> to) {
  const Result<json> before = SettingsAfter(from);
  if (const auto* failure = std::get_if<Failure>(&before)) return Fail(*failure);
  const Result<json> after = SettingsAfter(to);
  if (const auto* failure = std::get_if<Failure>(&after)) return Fail(*failure);
  return ShowDifferences(std::get<json>(before), std::get<json>(after));
}

int Commands::History(uint64_t from, uint64_t limit) {
  return ShowList(client_.Get(absl::StrCat("/v1/history?from=", from, "&limit=", limit)), "revisions", &RenderHistory);
}

int Commands::Flips(uint64_t limit) { return ShowList(client_.Get(absl::StrCat("/v1/flips?limit=", limit)), "flips", &RenderFlips); }

int Commands::Watch(std::optional<uint64_t> from, bool firings, bool record) {
  std::string target = absl::StrCat("/v1/watch?firings=", firings || record ? "true" : "false", "&snapshot=", record ? "true" : "false");
  if (from.has_value()) absl::StrAppend(&target, "&from=", *from);
  const auto ended = client_.Follow(target, [&](const std::string& name, const json& data) {
    const json event = {{"event", name}, {"data", data}};
    switch (record ? OutputFormat::kJson : style_.format) {
      case OutputFormat::kTable: Print(RenderEvent(name, data) + "\n"); break;
      case OutputFormat::kJson: Print(Compact(event) + "\n"); break;
      case OutputFormat::kYaml: Print("---\n" + ToYaml(event)); break;
    }
    return std::ferror(out_) == 0;
  });
  const auto* failure = std::get_if<Failure>(&ended);
  return failure == nullptr ? kExitOk : Fail(*failure);
}

}  // namespace stria
