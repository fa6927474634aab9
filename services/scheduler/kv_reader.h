// The `kv` object of a request's body. docs/plans.md lists what it may say and every refusal.
#pragma once

#include <optional>

#include "scheduler/kv_choice.h"
#include "services/scheduler/json_fields.h"

namespace stria {

// One layer's: a width for keys and values, {"keys": width, "values": width}, "inherit", or {"latent": …} of which only the kind is read, because
// it is refused later. Nullopt: anything else.
std::optional<LayerAction> ReadAction(const Json& value);

// `has_pack`: the model has one, and so a mode `kaizen`.
KvChoice ReadKv(ObjectReader& body, bool has_pack, std::optional<ApiError>* error);

}  // namespace stria
