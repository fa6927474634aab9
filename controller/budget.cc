#include "controller/budget.h"

#include <algorithm>

#include "controller/layer_state.h"

namespace stria {
namespace {

struct Step {
  size_t spender;
  Width to;
  double cost;   // added
  double slope;  // added cost for each bit saved
};

// The steps of one spender from its widest width down, along the lower convex hull, so their slopes grow.
void AddSteps(size_t index, const Spender& spender, std::vector<Step>& steps) {
  Width from = spender.bounds.widest;
  while (from != spender.bounds.narrowest) {
    Step best{index, from, 0, 0};
    for (const Width to : kAllWidths) {  // narrow to wide: of equal slopes the longest step
      if (Bits(to) >= Bits(from) || Bits(to) < Bits(spender.bounds.narrowest)) continue;
      const double cost = std::max(0.0, CostAt(spender.cost, to) - CostAt(spender.cost, from));
      const double slope = cost / (Bits(from) - Bits(to));
      if (best.to == from || slope < best.slope) best = {index, to, cost, slope};
    }
    steps.push_back(best);
    from = best.to;
  }
}

}  // namespace

double CostAt(const WidthCosts& cost, Width width) { return width == Width::kFp16 ? 0 : cost[ReadingIndex(width)]; }

std::vector<Width> SpendBudget(std::span<const Spender> spenders, double budget) {
  std::vector<Width> widths;
  std::vector<Step> steps;
  double spent = 0;
  for (size_t i = 0; i < spenders.size(); ++i) {
    widths.push_back(spenders[i].bounds.widest);
    spent += CostAt(spenders[i].cost, widths[i]);
    AddSteps(i, spenders[i], steps);
  }
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.slope < b.slope; });
  std::vector<char> stopped(spenders.size());
  for (const Step& step : steps) {
    // A step that does not fit ends its spender's way; cheaper ones of others may still fit.
    if (stopped[step.spender] || spent + step.cost > budget) {
      stopped[step.spender] = true;
      continue;
    }
    spent += step.cost;
    widths[step.spender] = step.to;
  }
  return widths;
}

}  // namespace stria
