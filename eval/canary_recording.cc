#include "eval/canary_recording.h"

#include <cmath>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stria {
namespace {

constexpr double kUnit = 1e-6;

bool ParseFiring(const std::string& line, RecordedFiring& firing) {
  const std::vector<std::string> fields = absl::StrSplit(line, ',');
  if (fields.size() < 6 || fields.size() % 3 != 0 || fields[0].empty()) return false;
  firing.workload = fields[0];
  if (!absl::SimpleAtoi(fields[1], &firing.text) || !absl::SimpleAtoi(fields[2], &firing.tokens)) return false;
  firing.layers.resize(fields.size() / 3 - 1);
  for (size_t i = 3; i < fields.size(); ++i) {
    uint32_t value = 0;
    if (!absl::SimpleAtoi(fields[i], &value)) return false;
    firing.layers[i / 3 - 1][i % 3] = static_cast<float>(value * kUnit);
  }
  return true;
}

}  // namespace

std::string FormatFiring(const RecordedFiring& firing) {
  std::string line = absl::StrCat(firing.workload, ",", firing.text, ",", firing.tokens);
  for (const auto& layer : firing.layers)
    for (const float kl : layer) absl::StrAppend(&line, ",", std::lround(kl / kUnit));
  return line + "\n";
}

absl::StatusOr<std::vector<RecordedFiring>> ReadRecording(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::vector<RecordedFiring> firings;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    RecordedFiring firing;
    if (!ParseFiring(line, firing) || (!firings.empty() && firing.layers.size() != firings[0].layers.size()))
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": not a recorded firing"));
    firings.push_back(std::move(firing));
  }
  if (firings.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return firings;
}

}  // namespace stria
