// The brain's structs as JSON: for the state file and for the admin API.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "controller/controller.h"

namespace stria {

// Every setting by name. Types follow SettingFields(): numbers, whole numbers, booleans.
nlohmann::json ToJson(const Settings& settings);
// `base` with the fields that the object names replaced. InvalidArgument names the field and value; unknown fields are refused.
absl::StatusOr<Settings> SettingsFromJson(const nlohmann::json& object, const Settings& base);

// `current` with what the change from `before` to `after` did put back as it was; what others changed since stays. All three are
// ToJson() of settings; objects are compared key by key.
nlohmann::json UndoChange(nlohmann::json current, const nlohmann::json& before, const nlohmann::json& after);

nlohmann::json ToJson(const Revision& revision);
nlohmann::json ToJson(const Flip& flip);
nlohmann::json ToJson(const LoopStep& step);
nlohmann::json ToJson(const TierVector& vector);
// `readings`: [{layer, kind, int2, int4, int8}]; a value that is not finite is null.
nlohmann::json ToJson(const CanaryFrame& frame);

// All of a model that survives a restart, exactly: doubles read back to the same bits. Kept in the state file only.
nlohmann::json ToJson(const ModelState& state);
// DataLoss says what is missing or out of range.
absl::StatusOr<ModelState> ModelStateFromJson(const nlohmann::json& object);

// Text as JSON, with any byte that is not UTF-8 replaced, so that writing never fails.
std::string Dump(const nlohmann::json& json, int indent = -1);

}  // namespace stria
