#include "services/ctl/command_line.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/width.h"
#include "controller/settings.h"
#include "services/ctl/completion.h"
#include "services/ctl/exit_codes.h"
#include "services/ctl/key_files.h"
#include "services/ctl/man_page.h"

namespace stria {
namespace {

std::string ExitCodeHelp() {
  return "Exit codes: " + absl::StrJoin(kExitCodes, "; ", [](std::string* out, const ExitCodeMeaning& code) {
           absl::StrAppend(out, static_cast<int>(code.code), " ", code.meaning);
         });
}

// What an argument may be, in the braces that help and completion show. The controller judges it.
std::string OneOf(const std::vector<std::string>& choices) { return absl::StrCat("{", absl::StrJoin(choices, ","), "}"); }

std::string SettingNames() {
  std::vector<std::string> names;
  for (const SettingField& field : SettingFields()) names.emplace_back(field.name);
  return OneOf(names);
}

std::vector<std::string> WidthNames() {
  std::vector<std::string> names;
  for (const Width width : kAllWidths) names.emplace_back(Name(width));
  return names;
}

}  // namespace

CommandLine::CommandLine() {
  app_.footer(ExitCodeHelp());
  app_.add_option("--controller", global_.controller, "where it answers")->envname("STRIA_CONTROLLER")->capture_default_str();
  app_.add_option("-o,--output", global_.output, "form of the answer")->check(CLI::IsMember({"table", "json", "yaml"}))->capture_default_str();
  app_.add_option("--timeout", global_.timeout, "seconds to wait for an answer")->check(CLI::Range(0.1, 3600.0))->capture_default_str();
  app_.add_option("--token-file", global_.token_file, "file that holds the token; otherwise STRIA_TOKEN's value is taken")->type_name("FILE");
  app_.require_subcommand(1);
  app_.fallthrough();
  AddReading();
  AddSettings();
  AddChanging();
  AddRecord();
  AddTexts();
}

CLI::App* CommandLine::Group(CLI::App& parent, const char* name, const char* help) {
  CLI::App* group = parent.add_subcommand(name, help);
  group->require_subcommand(1);
  return group;
}

CLI::App* CommandLine::Leaf(CLI::App& parent, const char* name, const char* help, Action action) {
  CLI::App* leaf = parent.add_subcommand(name, help);
  leaf->callback([this, action = std::move(action)] { action_ = action; });
  return leaf;
}

CLI::App* CommandLine::Changing(CLI::App& parent, const char* name, const char* help, Action action) {
  CLI::App* leaf = Leaf(parent, name, help, std::move(action));
  leaf->add_option("--reason", change_.reason, "kept in the history");
  leaf->add_option("--who", change_.who, "kept in the history; default user@host");
  leaf->add_option("--check-rev", change_.check_revision, "only if this is the newest revision");
  leaf->add_flag("--dry-run", change_.dry_run, "only say what would change");
  return leaf;
}

void CommandLine::GetAndSet(CLI::App& parent, const std::string& setting) {
  Leaf(parent, "get", "show it", [setting](Commands& c) { return c.GetSetting(setting); });
  Changing(parent, "set", "change it", [this, setting](Commands& c) {
    return c.Change({{setting, ParseValue(value_)}}, change_);
  })->add_option("VALUE", value_, "a number, or a fraction like 1/64")->required();
}

void CommandLine::AddReading() {
  Leaf(app_, "status", "workers and whether they apply the current tier vector", [](Commands& c) { return c.Status(); });
  Leaf(app_, "tiers", "per layer: width in force, smoothed readings against tau, flips", [this](Commands& c) { return c.Tiers(model_); })
      ->add_option("--model", model_, "only this one, by name or fingerprint");
}

void CommandLine::AddSettings() {
  CLI::App* tau = Group(app_, "tau", "the threshold, nats at the reference length");
  GetAndSet(*tau, "tau");
  Leaf(*tau, "plan", "what another threshold would do", [this](Commands& c) { return c.Plan({"tau=" + value_}, ""); })
      ->add_option("VALUE", value_, "a number")->required();
  AddTarget();
  GetAndSet(*Group(*Group(app_, "canary", "the canary's settings"), "rate", "share of decode steps that fire"), "canary_rate");
  CLI::App* settings = Group(app_, "settings", "every setting by its name");
  Leaf(*settings, "show", "all of them", [](Commands& c) { return c.ShowSettings(); });
  Leaf(*settings, "get", "one of them", [this](Commands& c) { return c.GetSetting(name_); })
      ->add_option("NAME", name_, "as 'settings show' lists it")->required()->type_name(SettingNames());
  CLI::App* set = Changing(*settings, "set", "change one", [this](Commands& c) { return c.Change({{name_, ParseValue(value_)}}, change_); });
  set->add_option("NAME", name_, "as 'settings show' lists it")->required()->type_name(SettingNames());
  set->add_option("VALUE", value_, "a number, a fraction like 1/64, true, false or a name")->required();
}

void CommandLine::AddTarget() {
  CLI::App* target = app_.add_subcommand("target", "the next-token KL that tau, or the KL budget, is moved to hold; alone: show");
  target->require_subcommand(0, 1);
  target->callback([this, target] {
    if (target->get_subcommands().empty()) action_ = [](Commands& c) { return c.Target(); };
  });
  Leaf(*target, "show", "measured KL, tokens scored, what is in force, the loop's newest steps", [](Commands& c) { return c.Target(); });
  Changing(*target, "set", "ask for a quality; tau starts from where it is pinned", [this](Commands& c) { return c.SetTarget(value_, change_); })
      ->add_option("TARGET", value_, "as kl=NATS")->required()->type_name("kl=NATS");
  Changing(*target, "off", "ask for none; tau goes back to where it is pinned", [this](Commands& c) { return c.TargetOff(keep_, change_); })
      ->add_flag("--keep", keep_, "pin what the target has found, so that nothing moves");
}

void CommandLine::AddChanging() {
  CLI::App* pin = Changing(app_, "pin", "hold one layer at a width, whatever it measures", [this](Commands& c) {
    const nlohmann::json pin = {{"keys", keys_}, {"values", values_.empty() ? keys_ : values_}};
    return c.Change({{"pins", {{absl::StrCat(layer_), pin}}}}, change_);
  });
  pin->add_option("LAYER", layer_, "its number, from 0")->required();
  pin->add_option("KEYS", keys_, "width of its keys")->required()->check(CLI::IsMember(WidthNames()));
  pin->add_option("VALUES", values_, "width of its values; default as its keys")->check(CLI::IsMember(WidthNames()));
  Changing(app_, "unpin", "let layers move again", [this](Commands& c) {
    nlohmann::json pins = nlohmann::json::object();
    for (const uint32_t layer : layers_) pins[absl::StrCat(layer)] = nullptr;
    return c.Change({{"pins", std::move(pins)}}, change_);
  })->add_option("LAYER", layers_, "their numbers, from 0")->required();
  Changing(app_, "freeze", "hold the tier vector, switch the canary off", [this](Commands& c) { return c.Freeze(true, change_); });
  Changing(app_, "thaw", "let the tier vector move again", [this](Commands& c) { return c.Freeze(false, change_); });
  CLI::App* recommend = Group(app_, "recommend", "compute and show widths, but leave the vector in force as it is");
  Changing(*recommend, "on", "only recommend", [this](Commands& c) { return c.Change({{"recommend_only", true}}, change_); });
  Changing(*recommend, "off", "decide", [this](Commands& c) { return c.Change({{"recommend_only", false}}, change_); });
  Leaf(app_, "export", "all settings, as 'apply' reads them", [](Commands& c) { return c.Export(); });
  const char* kFileHelp = "settings by name in JSON or YAML, or what 'export' writes; - is the standard input";
  Changing(app_, "apply", "change the settings that a file names", [this](Commands& c) { return c.Apply(file_, change_); })
      ->add_option("-f,--file", file_, kFileHelp)->required()->type_name("FILE");
  CLI::App* plan = Leaf(app_, "plan", "what a change would do, layer by layer; changes nothing",
                        [this](Commands& c) { return c.Plan(assignments_, file_); });
  plan->add_option("-f,--file", file_, kFileHelp)->type_name("FILE");
  plan->add_option("SETTING", assignments_, "as NAME=VALUE")->type_name("NAME=VALUE");
}

void CommandLine::AddRecord() {
  CLI::App* diff = Leaf(app_, "diff", "settings in force against a file, or between two revisions", [this](Commands& c) {
    return file_.empty() ? c.DiffRevisions(from_.value_or(0), to_) : c.DiffFile(file_);
  });
  CLI::Option* file = diff->add_option("-f,--file", file_, "settings in JSON or YAML; - is the standard input")->type_name("FILE");
  diff->add_option("FROM", from_, "a revision; 0, the default, is the beginning")->excludes(file);
  diff->add_option("TO", to_, "a revision; default the settings in force");
  CLI::App* history = Leaf(app_, "history", "changes by operators: who, when, what, why",
                           [this](Commands& c) { return c.History(from_.value_or(0), limit_); });
  history->add_option("--from", from_, "first revision to list");
  history->add_option("--limit", limit_, "the newest so many")->capture_default_str();
  Changing(app_, "undo", "put back what a revision changed, as a new revision", [this](Commands& c) { return c.Undo(revision_, change_); })
      ->add_option("REVISION", revision_, "default the newest");
  Leaf(app_, "flips", "changes of layers' widths, newest last", [this](Commands& c) { return c.Flips(limit_); })
      ->add_option("--limit", limit_, "the newest so many")->capture_default_str();
  CLI::App* watch = Leaf(app_, "watch", "what happens, as it happens; ends when the controller does",
                         [this](Commands& c) { return c.Watch(from_, firings_, record_); });
  watch->add_option("--from", from_, "first tell the revisions from this number on");
  watch->add_flag("--firings", firings_, "canary firings too");
  watch->add_flag("--record", record_, "for the live page's replay: what is now, then all that happens, firings too, as JSON");
}

void CommandLine::AddTexts() {
  CLI::App* completion = app_.add_subcommand("completion", "a script that completes striactl's commands in a shell");
  completion->add_option("SHELL", shell_, "which one")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([this] { text_ = [this] { return CompletionScript(app_, shell_); }; });
  CLI::App* keys = app_.add_subcommand("keys", "new CURVE keys for scheduler, controller and workers, as files; asks no controller");
  keys->add_option("FOLDER", folder_, "where to; none of the files may be there yet")->required();
  keys->add_option("--worker", key_names_, "name of a worker's key, once for each; workers may share one")->capture_default_str();
  keys->callback([this] { text_ = [this] { return WriteKeyFiles(folder_, key_names_); }; });
  app_.add_subcommand("man", "this manual: striactl man | man -l -")->callback([this] { text_ = [this] { return ManPage(app_); }; });
}

}  // namespace stria
