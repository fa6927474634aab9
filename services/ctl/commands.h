// What each striactl command does, once flags are parsed. Each returns the process's exit code.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "services/ctl/admin_client.h"

namespace stria {

enum class OutputFormat { kTable, kJson, kYaml };

struct OutputStyle {
  OutputFormat format = OutputFormat::kTable;
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
  int Target();
  // `wanted` as NAME=VALUE; the only name is kl.
  int SetTarget(const std::string& wanted, const ChangeFlags& flags);
  // With `keep` what the loop has found is pinned in the same revision, so that nothing moves.
  int TargetOff(bool keep, const ChangeFlags& flags);
  int ShowSettings();
  int GetSetting(const std::string& name);  // table: the bare value
  int Export();                             // table: YAML, as Apply() reads it
  // Settings by name, as PUT /v1/settings takes them.
  int Change(nlohmann::json settings, const ChangeFlags& flags);
  int Freeze(bool frozen, const ChangeFlags& flags);
  int Undo(std::optional<uint64_t> revision, const ChangeFlags& flags);
  // Files are JSON or YAML: settings by name, or what Export() writes. "-" is the standard input.
  int Apply(const std::string& file, const ChangeFlags& flags);
  // What settings given as NAME=VALUE, or a file's, would do.
  int Plan(const std::vector<std::string>& assignments, const std::string& file);
  // kExitDiffers when a file's settings differ from those in force.
  int DiffFile(const std::string& file);
  // The same of the settings after two revisions; 0 is the beginning, and without `to` those in force.
  int DiffRevisions(uint64_t from, std::optional<uint64_t> to);
  int History(uint64_t from, uint64_t limit);  // json: a list of objects with "revision"
  int Flips(uint64_t limit);
  // One line an event; json: one object {"event", "data"} a line. Ends when the controller goes away.
  // With `record`, a snapshot first and firings too, as JSON whatever the style.
  int Watch(std::optional<uint64_t> from, bool firings, bool record);

 private:
  using Json = nlohmann::json;
  using Render = std::string (*)(const Json&, bool colour);
  void Print(const std::string& text);
  void PrintDocument(const Json& value);  // as JSON or YAML
  int Fail(const Failure& failure);
  int Show(const Result<Json>& answer, Render render);
  int ShowList(Result<Json> answer, const char* list, Render render);  // json and yaml: only the list
  int ShowChange(const Result<Json>& answer);
  int ShowDifferences(const Json& before, const Json& after);
  Result<Json> SettingsAfter(std::optional<uint64_t> revision);
  static Result<Json> ReadSettings(const std::string& file);

  AdminClient& client_;
  OutputStyle style_;
  std::FILE* out_;
  std::FILE* error_;
};

// A setting's value as typed: "0.03", "1/64", "true" and "int4" as number, boolean and text. What it may be is the controller's to judge.
nlohmann::json ParseValue(const std::string& text);

}  // namespace stria
