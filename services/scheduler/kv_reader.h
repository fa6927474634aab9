// The `kv` object of a request's body. docs/plans.md lists what it may say and every refusal.
#pragma once

#include <optional>

#include "scheduler/kv_choice.h"
#include "services/scheduler/json_fields.h"

namespace stria {

KvChoice ReadKv(ObjectReader& body, std::optional<ApiError>* error);

}  // namespace stria
