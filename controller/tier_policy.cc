#include "controller/tier_policy.h"

#include <cmath>

namespace stria {
namespace {

constexpr double kGuardFactor = 4;

Width Guard(Occasion occasion, Width now, const SmoothedReadings& readings, double tau) {
  if (!readings[0].valid()) return Width::kInt2;
  const Width wanted = NarrowestWidth(0, [&](size_t i) { return readings[i].value() <= kGuardFactor * tau; });
  return occasion == Occasion::kSettingsStale ? Wider(now, wanted) : wanted;
}

class ChosenPolicy final : public TierPolicy {
 public:
  void Decide(const Question& question, std::span<LayerState> layers) const override {
    (question.settings.policy == PolicyKind::kBudget ? *budget_ : *threshold_).Decide(question, layers);
  }

 private:
  const std::unique_ptr<TierPolicy> threshold_ = MakeThresholdPolicy(), budget_ = MakeBudgetPolicy();
};

}  // namespace

double CalibratedReading(const Calibration& calibration, const Settings& settings, size_t layer, size_t width) {
  return calibration.layers[layer].canary[width] * std::sqrt(settings.reference_length / kCalibrationLength);
}

void UpdateGuards(const Settings& settings, Occasion occasion, LayerState& layer) {
  layer.tier.guard_plain = Guard(occasion, layer.tier.guard_plain, layer.plain, settings.tau);
  layer.tier.guard_latent = Guard(occasion, layer.tier.guard_latent, layer.latent, settings.tau);
}

std::unique_ptr<TierPolicy> MakeTierPolicy() { return std::make_unique<ChosenPolicy>(); }

}  // namespace stria
