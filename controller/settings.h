// What operators can change, as plain data with one table that names, bounds and explains every field. The JSON of the admin
// API, the checks, diffs and striactl's help all come from that table, so a new setting is one row.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace stria {

struct Settings {
  double tau = 0.022;              // τ0: KL in nats that a layer may cost at L0
  double alpha = 0.1;              // weight of the newest reading in an EMA
  double hysteresis = 0.2;         // h: narrowing needs EMA < (1 − h)·τ0 …
  uint32_t demote_after = 3;       // k: … for so many firings in a row
  double canary_rate = 1.0 / 64;   // share of decode steps that fire
  uint32_t reference_length = 4096;  // L0 of τ(L) = τ0·√(L/L0)
  bool frozen = false;             // the vector is held and the canary is off
  friend bool operator==(const Settings&, const Settings&) = default;
};

struct SettingField {
  enum class Type { kNumber, kInteger, kBool };
  std::string_view name;  // as in JSON
  Type type;
  double min, max;  // inclusive
  std::string_view meaning;
  double (*get)(const Settings&);
  void (*set)(Settings&, double);  // the value is within bounds, and whole where the type says so
};

std::span<const SettingField> SettingFields();

// nullptr: no such setting.
const SettingField* FindSetting(std::string_view name);

// Sets one field by name. InvalidArgument names the field, the value and the bounds; `settings` is then as before.
absl::Status SetSetting(Settings& settings, std::string_view name, double value);

// Names of the fields in which the two differ, in table order.
std::vector<std::string> ChangedSettings(const Settings& before, const Settings& after);

}  // namespace stria
