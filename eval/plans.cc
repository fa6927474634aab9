#include "eval/plans.h"

#include <cmath>

#include "base/check.h"
#include "controller/budget.h"
#include "controller/layer_state.h"

namespace stria {
namespace {

CachePlan EmptyPlan(const Calibration& calibration) {
  return UniformPlan(static_cast<int>(calibration.layers.size()), Width::kFp16, Width::kFp16);
}

CachePlan SpentPlan(const Calibration& calibration, double budget) {
  std::vector<Spender> spenders;
  for (const LayerCalibration& layer : calibration.layers) {
    spenders.push_back({layer.keys, {}});
    spenders.push_back({layer.values, {}});
  }
  const std::vector<Width> widths = SpendBudget(spenders, budget);
  CachePlan plan = EmptyPlan(calibration);
  for (size_t l = 0; l < plan.layers.size(); ++l) plan.layers[l].keys = widths[2 * l], plan.layers[l].values = widths[2 * l + 1];
  return plan;
}

CachePlan PlanUnder(const Calibration& calibration, double tau) {
  CachePlan plan = EmptyPlan(calibration);
  for (size_t l = 0; l < plan.layers.size(); ++l) {
    const Width width = NarrowestWidth(0, [&](size_t i) { return calibration.layers[l].canary[i] < tau; });
    plan.layers[l].keys = plan.layers[l].values = width;
  }
  return plan;
}

// The widest plan of at most `bits`: `make` gives narrower plans for larger arguments. Bisects the argument's logarithm.
template <typename Make>
CachePlan WidestWithin(double bits, Make make) {
  double low = std::log(1e-9), high = std::log(1e3);
  STRIA_CHECK(MeanBits(make(std::exp(high))) <= bits);
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (MeanBits(make(std::exp(middle))) <= bits ? high : low) = middle;
  }
  return make(std::exp(high));
}

}  // namespace

CachePlan BudgetPlan(const Calibration& calibration, double bits) {
  return WidestWithin(bits, [&](double budget) { return SpentPlan(calibration, budget); });
}

CachePlan ThresholdPlan(const Calibration& calibration, double bits) {
  return WidestWithin(bits, [&](double tau) { return PlanUnder(calibration, tau); });
}

double MeanBits(const CachePlan& plan) {
  double bits = 0;
  for (const LayerAction& layer : plan.layers) bits += (Bits(layer.keys) + Bits(layer.values)) / 2.0;
  return bits / static_cast<double>(plan.layers.size());
}

double PredictedKl(const Calibration& calibration, const CachePlan& plan) {
  double kl = 0;
  for (size_t l = 0; l < plan.layers.size(); ++l)
    kl += CostAt(calibration.layers[l].keys, plan.layers[l].keys) + CostAt(calibration.layers[l].values, plan.layers[l].values);
  return kl;
}

}  // namespace stria
