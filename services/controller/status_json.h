// What the admin API shows, as JSON built from the brain. docs/api.md describes every field.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "services/controller/control_loop.h"

namespace stria {

// GET /v1/status: models, workers and their sync, the state file.
nlohmann::json StatusJson(const ControlLoop& loop);

// GET /v1/tiers: per layer the widths in force, the averages against τ, flips. `model` (fingerprint or name) chooses; empty: all.
nlohmann::json TiersJson(const ControlLoop& loop, std::string_view model);

}  // namespace stria
