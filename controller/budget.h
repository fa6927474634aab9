// How to spend a budget of next-token KL where it buys most: the widths of all layers' keys and values that make the cache
// smallest while the predicted KL, a sum over layers, stays within it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "controller/calibration.h"
#include "controller/settings.h"

namespace stria {

// The pages of one kind of one layer.
struct Spender {
  WidthCosts cost{};  // predicted KL at kReadingWidths; FP16 costs nothing
  WidthBounds bounds;
};

double CostAt(const WidthCosts& cost, Width width);

// One width per spender. A Lagrangian sweep: each spender steps down the lower convex hull of its (bits, cost) points, the steps
// of all taken in order of KL per bit saved while they fit (Shoham and Gersho, 1988). All spenders hold as many elements. Bounds
// are kept even where they alone exceed the budget.
std::vector<Width> SpendBudget(std::span<const Spender> spenders, double budget);

}  // namespace stria
