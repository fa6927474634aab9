// The plans that the controller's policies would choose on a model's calibration, by size: what the quality tool compares.
#pragma once

#include "controller/calibration.h"
#include "worker/teacher_forcing.h"

namespace stria {

// The budget policy's widths with at most `bits` per element (keys and values alike, scales aside), as close as its steps allow.
CachePlan BudgetPlan(const Calibration& calibration, double bits);

// The threshold policy's, keys and values alike, at the smallest τ that takes at most `bits`.
CachePlan ThresholdPlan(const Calibration& calibration, double bits);

double MeanBits(const CachePlan& plan);

// The budget policy's forecast of the plan's next-token KL: the sum of its layers' costs.
double PredictedKl(const Calibration& calibration, const CachePlan& plan);

}  // namespace stria
