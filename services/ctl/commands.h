// What each striactl command does, once flags are parsed. Each returns the process's exit code.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/ctl/admin_client.h"

namespace stria {

struct OutputStyle {
  bool json = false;    // -o json
  bool colour = false;  // stdout is a terminal that wants it
};

// What belongs to every changing command.
struct ChangeFlags {
  std::string who, reason;
  std::optional<uint64_t> check_revision;
  bool dry_run = false;
};

class Commands {
 public:
  Commands(AdminClient& client, OutputStyle style, std::FILE* out, std::FILE* error)
      : client_(client), style_(style), out_(out), error_(error) {}

  int Status();
  int Tiers(const std::string& model);
  int ShowSettings();
  int GetSetting(const std::string& name);  // table: the bare value
  int SetSetting(const std::string& name, const std::string& value, const ChangeFlags& flags);
  int Freeze(bool frozen, const ChangeFlags& flags);
  int History(uint64_t from, uint64_t limit);  // json: a list of objects with "revision"
  int Flips(uint64_t limit);
  // One line an event; json: one object {"event", "data"} a line. Ends when the controller goes away.
  int Watch(std::optional<uint64_t> from, bool firings);

 private:
  using Render = std::string (*)(const nlohmann::json&, bool colour);
  int Show(const Result<nlohmann::json>& answer, Render render);
  int ShowChange(const Result<nlohmann::json>& answer);
  int Fail(const Failure& failure);
  void Print(const std::string& text);

  AdminClient& client_;
  OutputStyle style_;
  std::FILE* out_;
  std::FILE* error_;
};

// "0.03", "1/64", "true", "false"; InvalidArgument names the text. What the value may be is the controller's to judge.
absl::StatusOr<nlohmann::json> ParseValue(const std::string& text);

}  // namespace stria
