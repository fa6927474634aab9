#include "controller/settings.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace stria {
namespace {

using Type = SettingField::Type;

// One row per member. The lambdas capture nothing, so they decay to plain function pointers.
#define STRIA_SETTING(member, type, min, max, meaning)                    \
  SettingField {                                                          \
    #member, type, min, max, meaning,                                     \
        [](const Settings& s) { return static_cast<double>(s.member); },  \
        [](Settings& s, double v) { s.member = static_cast<decltype(s.member)>(v); } \
  }

const SettingField kFields[] = {
    STRIA_SETTING(tau, Type::kNumber, 1e-9, 100, "KL in nats that a layer may cost at the reference length"),
    STRIA_SETTING(alpha, Type::kNumber, 1e-4, 1, "weight of the newest reading in the moving average"),
    STRIA_SETTING(hysteresis, Type::kNumber, 0, 0.95, "a layer narrows only under (1 - hysteresis) * tau"),
    STRIA_SETTING(demote_after, Type::kInteger, 1, 10000, "firings in a row before a layer narrows"),
    STRIA_SETTING(canary_rate, Type::kNumber, 0, 1, "share of decode steps that fire; 0 switches the canary off"),
    STRIA_SETTING(reference_length, Type::kInteger, 64, 1 << 24, "context length at which tau holds as it is"),
    STRIA_SETTING(frozen, Type::kBool, 0, 1, "hold the tier vector and switch the canary off"),
};

#undef STRIA_SETTING

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
  if (field == nullptr) return absl::InvalidArgumentError(absl::StrFormat("no setting is called '%s'", name));
  const bool whole = field->type == Type::kNumber || value == std::floor(value);
  if (!(value >= field->min && value <= field->max) || !whole) {  // NaN fails the comparison
    return absl::InvalidArgumentError(absl::StrFormat("%s = %g: must be %s from %g to %g", name, value,
                                                      field->type == Type::kNumber ? "a number" : "a whole number",
                                                      field->min, field->max));
  }
  field->set(settings, value);
  return absl::OkStatus();
}

std::vector<std::string> ChangedSettings(const Settings& before, const Settings& after) {
  std::vector<std::string> changed;
  for (const SettingField& field : kFields) {
    if (field.get(before) != field.get(after)) changed.emplace_back(field.name);
  }
  return changed;
}

}  // namespace stria
