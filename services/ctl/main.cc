// striactl: the operator's hand on the controller.
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

#include <pwd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "services/common/config.h"
#include "services/common/process.h"
#include "services/ctl/admin_client.h"
#include "services/ctl/commands.h"
#include "services/ctl/exit_codes.h"

namespace stria {
namespace {

struct Flags {
  std::string controller = "http://127.0.0.1:8001";
  std::string output = "table";
  double timeout = 10;
  ChangeFlags change;
  std::string name, value, model;
  std::optional<uint64_t> from;
  uint64_t limit = 1000;
  bool firings = false;
};

std::string Whoami() {
  const passwd* user = getpwuid(geteuid());
  return std::string(user == nullptr ? std::to_string(geteuid()) : user->pw_name) + "@" + HostName();
}

using Action = std::function<int(Commands&)>;

// The commands, each storing into *action what to do. Nested ones ("canary rate set") are sub-subcommands.
class CommandLine {
 public:
  CommandLine(CLI::App& app, Flags& flags, Action& action) : app_(app), flags_(flags), action_(action) {}

  void Add() {
    Leaf(app_, "status", "workers and whether they apply the current tier vector", [](Commands& c) { return c.Status(); });
    CLI::App* tiers = Leaf(app_, "tiers", "per layer: width in force, smoothed readings against tau, flips",
                           [this](Commands& c) { return c.Tiers(flags_.model); });
    tiers->add_option("--model", flags_.model, "only this one, by name or fingerprint");
    GetAndSet(*Group(app_, "tau", "the threshold, nats at the reference length"), "tau");
    GetAndSet(*Group(*Group(app_, "canary", "the canary's settings"), "rate", "share of decode steps that fire"), "canary_rate");
    CLI::App* settings = Group(app_, "settings", "every setting by its name");
    Leaf(*settings, "show", "all of them", [](Commands& c) { return c.ShowSettings(); });
    CLI::App* set = Changing(Leaf(*settings, "set", "change one",
                                  [this](Commands& c) { return c.SetSetting(flags_.name, flags_.value, flags_.change); }));
    set->add_option("NAME", flags_.name, "as 'settings show' lists it")->required();
    set->add_option("VALUE", flags_.value, "a number, a fraction like 1/64, true or false")->required();
    Changing(Leaf(app_, "freeze", "hold the tier vector, switch the canary off",
                  [this](Commands& c) { return c.Freeze(true, flags_.change); }));
    Changing(Leaf(app_, "thaw", "let the tier vector move again", [this](Commands& c) { return c.Freeze(false, flags_.change); }));
    CLI::App* watch = Leaf(app_, "watch", "what happens, as it happens; ends when the controller does",
                           [this](Commands& c) { return c.Watch(flags_.from, flags_.firings); });
    watch->add_option("--from", flags_.from, "first tell the revisions from this number on");
    watch->add_flag("--firings", flags_.firings, "canary firings too");
    CLI::App* history = Leaf(app_, "history", "changes by operators: who, when, what, why",
                             [this](Commands& c) { return c.History(flags_.from.value_or(0), flags_.limit); });
    history->add_option("--from", flags_.from, "first revision to list");
    history->add_option("--limit", flags_.limit, "the newest so many");
    Leaf(app_, "flips", "changes of layers' widths, newest last", [this](Commands& c) { return c.Flips(flags_.limit); })
        ->add_option("--limit", flags_.limit, "the newest so many");
  }

 private:
  CLI::App* Group(CLI::App& parent, const char* name, const char* help) {
    CLI::App* group = parent.add_subcommand(name, help);
    group->require_subcommand(1);
    return group;
  }
  CLI::App* Leaf(CLI::App& parent, const char* name, const char* help, Action action) {
    CLI::App* leaf = parent.add_subcommand(name, help);
    leaf->callback([this, action = std::move(action)] { action_ = action; });
    return leaf;
  }
  CLI::App* Changing(CLI::App* leaf) {
    leaf->add_option("--reason", flags_.change.reason, "kept in the history");
    leaf->add_option("--who", flags_.change.who, "kept in the history; default user@host");
    leaf->add_option("--check-rev", flags_.change.check_revision, "only if this is the newest revision");
    leaf->add_flag("--dry-run", flags_.change.dry_run, "say what would change");
    return leaf;
  }
  void GetAndSet(CLI::App& parent, const std::string& setting) {
    Leaf(parent, "get", "show it", [setting](Commands& c) { return c.GetSetting(setting); });
    Changing(Leaf(parent, "set", "change it", [this, setting](Commands& c) {
      return c.SetSetting(setting, flags_.value, flags_.change);
    }))->add_option("VALUE", flags_.value, "a number, or a fraction like 1/64")->required();
  }

  CLI::App& app_;
  Flags& flags_;
  Action& action_;
};

int Main(int argc, char** argv) {
  CLI::App app("Reads and changes a running Stria controller", "striactl");
  app.footer(kExitCodeHelp);
  Flags flags;
  app.add_option("--controller", flags.controller, "where it answers")->envname("STRIA_CONTROLLER")->capture_default_str();
  app.add_option("-o,--output", flags.output, "table or json")->check(CLI::IsMember({"table", "json"}))->capture_default_str();
  app.add_option("--timeout", flags.timeout, "seconds")->check(CLI::Range(0.1, 3600.0))->capture_default_str();
  app.require_subcommand(1);
  app.fallthrough();
  Action action;
  CommandLine commands_of(app, flags, action);  // outlives parsing: its actions refer to it
  commands_of.Add();
  if (const std::optional<int> code = ParseFlags(app, argc, argv)) return *code;
  if (flags.change.who.empty()) flags.change.who = Whoami();

  absl::StatusOr<AdminClient> client = AdminClient::Create(flags.controller, flags.timeout);
  if (!client.ok()) {
    std::fprintf(stderr, "striactl: %s\n", std::string(client.status().message()).c_str());
    return kExitUsage;
  }
  const OutputStyle style{.json = flags.output == "json",
                          .colour = isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr};
  Commands commands(*client, style, stdout, stderr);
  return action(commands);
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) { return stria::Main(argc, argv); }
