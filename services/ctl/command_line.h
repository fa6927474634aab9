// striactl's command tree: what main() parses, and what completion and the man page are made from.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/statusor.h"
#include "services/ctl/commands.h"

namespace stria {

struct GlobalFlags {
  std::string controller = "http://127.0.0.1:8001";
  std::string output = "table";
  double timeout = 10;
  std::string token_file;
};

// After parsing exactly one of the two is set: an action that talks to the controller, or a text that needs none.
class CommandLine {
 public:
  using Text = std::function<absl::StatusOr<std::string>()>;

  CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  CLI::App& app() { return app_; }
  const GlobalFlags& global() const { return global_; }
  ChangeFlags& change() { return change_; }
  const std::function<int(Commands&)>& action() const { return action_; }
  const Text& text() const { return text_; }

 private:
  using Action = std::function<int(Commands&)>;
  CLI::App* Group(CLI::App& parent, const char* name, const char* help);
  CLI::App* Leaf(CLI::App& parent, const char* name, const char* help, Action action);
  CLI::App* Changing(CLI::App& parent, const char* name, const char* help, Action action);
  void GetAndSet(CLI::App& parent, const std::string& setting);
  void AddReading();
  void AddSettings();
  void AddTarget();
  void AddChanging();
  void AddRecord();
  void AddTexts();

  CLI::App app_{"Reads and changes a running Stria controller", "striactl"};
  GlobalFlags global_;
  ChangeFlags change_;
  std::string name_, value_, model_, file_, keys_, values_, shell_, folder_;
  std::vector<std::string> assignments_, key_names_ = {"worker"};
  uint32_t layer_ = 0;
  std::vector<uint32_t> layers_;
  std::optional<uint64_t> from_, to_, revision_;
  uint64_t limit_ = 1000;
  bool firings_ = false, record_ = false, keep_ = false;
  Action action_;
  Text text_;
};

}  // namespace stria
