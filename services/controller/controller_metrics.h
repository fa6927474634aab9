// stria_controller_*, brought up to date when they are read. docs/metrics.md lists them.
#pragma once

#include <functional>

#include "services/common/metrics.h"
#include "services/controller/control_loop.h"

namespace stria {

// Makes the fixed series in `metrics` and returns what refreshes them all; series per model and layer appear with their model
// (models and layers are bounded, and their names come from workers). Both arguments outlive the result.
std::function<void()> MakeControllerMetrics(Metrics& metrics, const ControlLoop& loop);

}  // namespace stria
