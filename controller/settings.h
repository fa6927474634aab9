// What operators can change, as plain data. One table names, bounds and explains every single-valued field: the JSON of the admin
// API, the checks, diffs and striactl's help all come from it, so a new setting is one row. Pins, a value per layer, stand beside it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/width.h"

namespace stria {

// Widths that a policy may choose, both ends included. Equal ends pin the width.
struct WidthBounds {
  Width narrowest = Width::kInt2, widest = Width::kFp16;
  bool pinned() const { return narrowest == widest; }
  friend bool operator==(const WidthBounds&, const WidthBounds&) = default;
};

// What an operator prescribes for the pages of one layer. Bounds that differ from the default replace those of all layers.
struct LayerPin {
  WidthBounds keys, values;
  friend bool operator==(const LayerPin&, const LayerPin&) = default;
};

enum class PolicyKind : uint8_t { kThreshold, kBudget };

struct Settings {
  PolicyKind policy = PolicyKind::kThreshold;
  double tau = 0.022;              // τ0: KL in nats that a layer may cost at L0 (threshold)
  double kl_budget = 0.005;        // next-token KL in nats that the whole cache may cost (budget)
  // The outer loop (controller/quality_loop.h).
  double target_kl = 0;            // next-token KL in nats that is held by moving tau, or kl_budget; 0: they stay as they are
  double target_range = 16;        // by at most this factor either way
  // The rule, bands and waits (docs/stability.md). alpha 0.1, both bands 0 and both waits 1 is EchoKV's own.
  double alpha = 0.04;             // weight of the newest reading in an EMA
  // Damping. In a band around τ0 nothing changes; beyond it a layer waits, and far above it does not.
  double promote_band = 0.2;       // u: widening needs EMA ≥ (1 + u)·τ0 …
  uint32_t promote_after = 3;      // n: … for so many firings in a row …
  double promote_at_once = 2;      // … or EMA > this many τ0
  double hysteresis = 0.2;         // h: narrowing needs EMA < (1 − h)·τ0 …
  uint32_t demote_after = 3;       // k: … for so many firings in a row
  // Bounds of all layers, and layers that have their own.
  WidthBounds keys, values;
  std::map<uint32_t, LayerPin> pins;
  bool recommend_only = false;     // the policy computes and shows; the vector in force does not change
  bool pooled = false;             // the workers of a model count as one: a round at most once a second
  uint32_t freeze_after = 0;       // firings of a model after which its vector is held and its canary off; 0: never
  double canary_rate = 1.0 / 64;   // share of decode steps that fire
  uint32_t reference_length = 4096;  // L0 of τ(L) = τ0·√(L/L0)
  bool frozen = false;             // the vector is held and the canary is off
  friend bool operator==(const Settings&, const Settings&) = default;
};

struct SettingField {
  enum class Type { kNumber, kInteger, kBool, kChoice };
  std::string_view name;  // as in JSON
  Type type;
  double min, max;  // inclusive
  std::span<const std::string_view> choices;  // of kChoice: its value counts through them from 0
  std::string_view meaning;
  double (*get)(const Settings&);
  void (*set)(Settings&, double);  // the value is within bounds, and whole where the type says so
};

std::span<const SettingField> SettingFields();

// nullptr: no such setting.
const SettingField* FindSetting(std::string_view name);

// Sets one field by name. InvalidArgument names the field, the value and the bounds; `settings` is then as before.
absl::Status SetSetting(Settings& settings, std::string_view name, double value);
// The same for a choice, by its name: "int4".
absl::Status SetSetting(Settings& settings, std::string_view name, std::string_view choice);

// What single fields can't show: no narrowest width is wider than its widest. InvalidArgument names both.
absl::Status CheckSettings(const Settings& settings);

// The bounds that hold for a layer.
LayerPin BoundsOf(const Settings& settings, uint32_t layer);

// The nearest width within the bounds.
Width Clamp(Width width, const WidthBounds& bounds);

// Names of the fields in which the two differ, in table order, then "pins.LAYER" of the pins that do.
std::vector<std::string> ChangedSettings(const Settings& before, const Settings& after);

}  // namespace stria
