// What the admin API shows, as JSON built from the brain. docs/api.md describes every field.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "services/controller/control_loop.h"

namespace stria {

// GET /v1/status: models, workers and their sync, the state file.
nlohmann::json StatusJson(const ControlLoop& loop);

// GET /v1/tiers: of one model, per layer the widths in force, the averages against τ, flips. `wanted` is a fingerprint or a
// name; empty means the only one that is served (or was, after a restart). No model at all gives a null model and no layers. NotFound and
// InvalidArgument (several to choose from) name the models.
absl::StatusOr<nlohmann::json> TiersJson(const ControlLoop& loop, std::string_view wanted);

// Per layer of a model the averages as they are: [{layer, ema, ema_latent}].
nlohmann::json SmoothedJson(const ModelState& model);

// All that a page or a recording begins with: status, every model's tiers, the settings.
nlohmann::json SnapshotJson(const ControlLoop& loop);

// GET /v1/target: what is asked for, and for each model what was measured, where τ (under `budget` the KL budget) is, and the newest
// `limit` steps of the loops.
absl::StatusOr<nlohmann::json> TargetJson(ControlLoop& loop, size_t limit);

// What other settings would do at once: {"models": [{model, model_name, average_bits: {before, after}, layers: [those whose width changes]}]}.
nlohmann::json PlanJson(const ControlLoop& loop, const Settings& after);

}  // namespace stria
