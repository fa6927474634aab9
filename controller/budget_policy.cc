#include <algorithm>

#include "controller/budget.h"
#include "controller/tier_policy.h"

namespace stria {
namespace {

// Keys and values of a layer stand side by side: spenders 2·l and 2·l + 1.
std::vector<Spender> Spenders(const Question& question, std::span<const LayerState> layers) {
  std::vector<Spender> spenders(2 * layers.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    const LayerCalibration& calibrated = question.calibration->layers[l];
    const LayerPin bounds = BoundsOf(question.settings, static_cast<uint32_t>(l));
    spenders[2 * l] = {calibrated.keys, bounds.keys};
    spenders[2 * l + 1] = {calibrated.values, bounds.values};
    if (!layers[l].plain[0].valid()) continue;
    for (size_t i = 0; i < kReadingWidths.size(); ++i) {
      const double reading = CalibratedReading(*question.calibration, question.settings, l, i);
      if (reading > 0) spenders[2 * l].cost[i] *= layers[l].plain[i].value() / reading;
    }
  }
  return spenders;
}

class BudgetPolicy final : public TierPolicy {
 public:
  void Decide(const Question& question, std::span<LayerState> layers) const override {
    for (LayerState& layer : layers) UpdateGuards(question.settings, question.occasion, layer);
    const bool fired = std::any_of(layers.begin(), layers.end(), [](const LayerState& l) { return l.plain[0].valid(); });
    if (question.calibration == nullptr || !fired) return;
    const std::vector<Spender> spenders = Spenders(question, layers);
    if (!layers[0].decided) {
      if (question.occasion == Occasion::kFiring) Adopt(SpendBudget(spenders, question.settings.kl_budget), false, layers);
      return;
    }
    if (!MustReplan(question, Predicted(spenders, layers), layers[0])) return;
    const bool only_wider = question.occasion == Occasion::kSettingsStale;
    Adopt(SpendBudget(spenders, question.settings.kl_budget), only_wider, layers);
  }

 private:
  static double Predicted(std::span<const Spender> spenders, std::span<const LayerState> layers) {
    double kl = 0;
    for (size_t l = 0; l < layers.size(); ++l) {
      kl += CostAt(spenders[2 * l].cost, layers[l].tier.keys) + CostAt(spenders[2 * l + 1].cost, layers[l].tier.values);
    }
    return kl;
  }

  // The plan is one, so its counts of firings are too: they stand in the first layer, `stable[0]` for a plan that could be
  // narrower, `above` for one that is too narrow.
  static bool MustReplan(const Question& question, double predicted, LayerState& counts) {
    const Settings& s = question.settings;
    if (question.occasion != Occasion::kFiring) return true;
    counts.above = predicted >= (1 + s.promote_band) * s.kl_budget ? std::min(counts.above, s.promote_after - 1) + 1 : 0;
    counts.stable[0] = predicted < (1 - s.hysteresis) * s.kl_budget ? std::min(counts.stable[0], s.demote_after - 1) + 1 : 0;
    return counts.above >= s.promote_after || counts.stable[0] >= s.demote_after ||
           predicted > s.promote_at_once * s.kl_budget;
  }

  static void Adopt(const std::vector<Width>& widths, bool only_wider, std::span<LayerState> layers) {
    const auto set = [&](Width& width, Width wanted) { width = only_wider ? Wider(width, wanted) : wanted; };
    for (size_t l = 0; l < layers.size(); ++l) {
      set(layers[l].tier.keys, widths[2 * l]);
      set(layers[l].tier.values, widths[2 * l + 1]);
      layers[l].decided = true;
      layers[l].above = 0;
      layers[l].stable = {};
    }
  }
};

}  // namespace

std::unique_ptr<TierPolicy> MakeBudgetPolicy() { return std::make_unique<BudgetPolicy>(); }

}  // namespace stria
