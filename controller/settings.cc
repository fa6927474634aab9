#include "controller/settings.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace stria {
namespace {

using Type = SettingField::Type;

constexpr std::string_view kPolicies[] = {"threshold", "budget"};  // in PolicyKind's order
constexpr std::string_view kWidths[] = {"int2", "int4", "int8", "fp16"};  // in kAllWidths' order

double IndexOf(Width width) {
  return static_cast<double>(std::find(std::begin(kAllWidths), std::end(kAllWidths), width) - std::begin(kAllWidths));
}

// One row per member. The lambdas capture nothing, so they decay to plain function pointers.
#define STRIA_SETTING(member, type, min, max, meaning)                    \
  SettingField {                                                          \
    #member, type, min, max, {}, meaning,                                 \
        [](const Settings& s) { return static_cast<double>(s.member); },  \
        [](Settings& s, double v) { s.member = static_cast<decltype(s.member)>(v); } \
  }
#define STRIA_WIDTH(name, member, meaning)                       \
  SettingField {                                                 \
    name, Type::kChoice, 0, 3, kWidths, meaning,                 \
        [](const Settings& s) { return IndexOf(s.member); },     \
        [](Settings& s, double v) { s.member = kAllWidths[static_cast<size_t>(v)]; } \
  }

const SettingField kFields[] = {
    SettingField{"policy", Type::kChoice, 0, 1, kPolicies, "threshold: each layer under tau; budget: all layers under kl_budget",
                 [](const Settings& s) { return static_cast<double>(s.policy); },
                 [](Settings& s, double v) { s.policy = static_cast<PolicyKind>(v); }},
    STRIA_SETTING(tau, Type::kNumber, 1e-9, 100, "KL in nats that a layer may cost at the reference length"),
    STRIA_SETTING(kl_budget, Type::kNumber, 1e-9, 100, "next-token KL in nats that the whole cache may cost, under policy budget"),
    STRIA_SETTING(target_kl, Type::kNumber, 0, 100, "measured next-token KL in nats to hold by moving tau, or kl_budget; 0: they stay as they are"),
    STRIA_SETTING(target_range, Type::kNumber, 1, 1e6, "the target moves tau, or kl_budget, by at most this factor either way"),
    STRIA_SETTING(alpha, Type::kNumber, 1e-4, 1, "weight of the newest reading in the moving average"),
    STRIA_SETTING(promote_band, Type::kNumber, 0, 10, "a layer widens only from (1 + promote_band) * tau on"),
    STRIA_SETTING(promote_after, Type::kInteger, 1, 10000, "firings in a row before a layer widens"),
    STRIA_SETTING(promote_at_once, Type::kNumber, 1, 100, "above this many tau a layer widens without waiting"),
    STRIA_SETTING(hysteresis, Type::kNumber, 0, 0.95, "a layer narrows only under (1 - hysteresis) * tau"),
    STRIA_SETTING(demote_after, Type::kInteger, 1, 10000, "firings in a row before a layer narrows"),
    STRIA_WIDTH("keys_narrowest", keys.narrowest, "narrowest width of any layer's keys"),
    STRIA_WIDTH("keys_widest", keys.widest, "widest width of any layer's keys"),
    STRIA_WIDTH("values_narrowest", values.narrowest, "narrowest width of any layer's values"),
    STRIA_WIDTH("values_widest", values.widest, "widest width of any layer's values"),
    STRIA_SETTING(recommend_only, Type::kBool, 0, 1, "compute and show widths, but leave the vector in force as it is"),
    STRIA_SETTING(pooled, Type::kBool, 0, 1, "the workers of a model count as one, a round at most once a second"),
    STRIA_SETTING(freeze_after, Type::kInteger, 0, 1e9, "firings of a model after which its vector is held and its canary off; 0: never"),
    STRIA_SETTING(canary_rate, Type::kNumber, 0, 1, "share of decode steps that fire; 0 switches the canary off"),
    STRIA_SETTING(reference_length, Type::kInteger, 64, 1 << 24, "context length at which tau holds as it is"),
    STRIA_SETTING(frozen, Type::kBool, 0, 1, "hold the tier vector and switch the canary off"),
};

#undef STRIA_SETTING
#undef STRIA_WIDTH

absl::Status NoSuchSetting(std::string_view name) {
  return absl::InvalidArgumentError(absl::StrFormat("no setting is called '%s'", name));
}

absl::Status CheckOrder(const std::string& what, const WidthBounds& bounds) {
  if (Bits(bounds.narrowest) <= Bits(bounds.widest)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: narrowest %s is wider than widest %s", what, Name(bounds.narrowest),
                                                    Name(bounds.widest)));
}

const WidthBounds& Choose(const WidthBounds& own, const WidthBounds& all) { return own == WidthBounds{} ? all : own; }

}  // namespace

std::span<const SettingField> SettingFields() { return kFields; }

const SettingField* FindSetting(std::string_view name) {
  for (const SettingField& field : kFields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

absl::Status SetSetting(Settings& settings, std::string_view name, double value) {
  const SettingField* field = FindSetting(name);
  if (field == nullptr) return NoSuchSetting(name);
  const bool whole = field->type == Type::kNumber || value == std::floor(value);
  if (!(value >= field->min && value <= field->max) || !whole) {  // NaN fails the comparison
    return absl::InvalidArgumentError(absl::StrFormat("%s = %g: must be %s from %g to %g", name, value,
                                                      field->type == Type::kNumber ? "a number" : "a whole number",
                                                      field->min, field->max));
  }
  field->set(settings, value);
  return absl::OkStatus();
}

absl::Status SetSetting(Settings& settings, std::string_view name, std::string_view choice) {
  const SettingField* field = FindSetting(name);
  if (field == nullptr) return NoSuchSetting(name);
  const auto found = std::find(field->choices.begin(), field->choices.end(), choice);
  if (found == field->choices.end()) {
    std::string wanted = field->type == Type::kBool ? "true or false" : "a number";
    if (field->type == Type::kChoice) wanted = "one of";
    for (const std::string_view name : field->choices) absl::StrAppend(&wanted, " ", std::string(name));
    return absl::InvalidArgumentError(absl::StrFormat("%s = \"%s\": must be %s", name, choice, wanted));
  }
  field->set(settings, static_cast<double>(found - field->choices.begin()));
  return absl::OkStatus();
}

absl::Status CheckSettings(const Settings& settings) {
  if (absl::Status status = CheckOrder("keys", settings.keys); !status.ok()) return status;
  if (absl::Status status = CheckOrder("values", settings.values); !status.ok()) return status;
  for (const auto& [layer, pin] : settings.pins) {
    if (absl::Status status = CheckOrder(absl::StrCat("pin of layer ", layer, ", keys"), pin.keys); !status.ok()) return status;
    if (absl::Status status = CheckOrder(absl::StrCat("pin of layer ", layer, ", values"), pin.values); !status.ok()) return status;
  }
  return absl::OkStatus();
}

LayerPin BoundsOf(const Settings& settings, uint32_t layer) {
  const auto pin = settings.pins.find(layer);
  if (pin == settings.pins.end()) return {settings.keys, settings.values};
  return {Choose(pin->second.keys, settings.keys), Choose(pin->second.values, settings.values)};
}

Width Clamp(Width width, const WidthBounds& bounds) {
  if (Bits(width) < Bits(bounds.narrowest)) return bounds.narrowest;
  return Bits(width) > Bits(bounds.widest) ? bounds.widest : width;
}

std::vector<std::string> ChangedSettings(const Settings& before, const Settings& after) {
  std::vector<std::string> changed;
  for (const SettingField& field : kFields) {
    if (field.get(before) != field.get(after)) changed.emplace_back(field.name);
  }
  std::set<uint32_t> layers;
  for (const auto& [layer, pin] : before.pins) layers.insert(layer);
  for (const auto& [layer, pin] : after.pins) layers.insert(layer);
  for (const uint32_t layer : layers) {
    const auto a = before.pins.find(layer), b = after.pins.find(layer);
    const bool same = a != before.pins.end() && b != after.pins.end() && a->second == b->second;
    if (!same) changed.push_back(absl::StrCat("pins.", layer));
  }
  return changed;
}

}  // namespace stria
