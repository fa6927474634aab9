#include "controller/tier_policy.h"

#include <algorithm>

namespace stria {
namespace {

constexpr double kGuardFactor = 4;

// The narrowest width after `from` (an index into kReadingWidths) that passes; FP16 if none.
template <typename Passes>
Width Narrowest(size_t from, Passes passes) {
  for (size_t i = from; i < kReadingWidths.size(); ++i) {
    if (passes(i)) return kReadingWidths[i];
  }
  return Width::kFp16;
}

// Position in kReadingWidths; its size for FP16.
size_t IndexOf(Width width) {
  return std::find(kReadingWidths.begin(), kReadingWidths.end(), width) - kReadingWidths.begin();
}

Width GuardWidth(const SmoothedReadings& readings, double tau) {
  return Narrowest(0, [&](size_t i) { return readings[i].valid() && readings[i].value() <= kGuardFactor * tau; });
}

// Old evidence may widen, never narrow.
Width Guard(Occasion occasion, Width now, const SmoothedReadings& readings, double tau) {
  const Width wanted = GuardWidth(readings, tau);
  return occasion == Occasion::kSettingsStale ? Wider(now, wanted) : wanted;
}

class ThresholdPolicy final : public TierPolicy {
 public:
  void Decide(const Settings& settings, Occasion occasion, std::span<const Measured> measured,
              std::span<LayerState> layers) const override {
    for (size_t l = 0; l < layers.size(); ++l) {
      LayerState& layer = layers[l];
      layer.tier.guard_plain = Guard(occasion, layer.tier.guard_plain, layer.plain, settings.tau);
      layer.tier.guard_latent = Guard(occasion, layer.tier.guard_latent, layer.latent, settings.tau);
      if (layer.plain[0].valid() && (occasion != Occasion::kFiring || measured[l].plain)) {
        DecideLayer(settings, occasion, layer);
      }
    }
  }

 private:
  static void DecideLayer(const Settings& settings, Occasion occasion, LayerState& layer) {
    const auto under_tau = [&](size_t i) { return layer.plain[i].value() < settings.tau; };
    const uint32_t wait = settings.demote_after;
    for (size_t i = 0; i < kReadingWidths.size(); ++i) {
      uint32_t& stable = layer.stable[i];
      if (layer.plain[i].value() >= (1 - settings.hysteresis) * settings.tau) {
        stable = 0;
      } else if (occasion == Occasion::kFiring) {
        stable = std::min(stable, wait - 1) + 1;
      } else {
        // A moved threshold is no noise, so there is nothing to wait for; but a silent model's EMAs prove nothing any more.
        stable = occasion == Occasion::kSettings ? wait : 0;
      }
    }
    const size_t current = IndexOf(layer.tier.keys);
    const auto settled = [&](size_t i) { return i < current && layer.stable[i] >= wait; };
    if (!layer.decided) {
      if (occasion != Occasion::kFiring) return;
      layer.decided = true;
      layer.tier.keys = Narrowest(0, under_tau);
    } else if (const Width narrower = Narrowest(0, settled); narrower != Width::kFp16) {
      layer.tier.keys = narrower;
    } else if (current < kReadingWidths.size() && !under_tau(current)) {
      layer.tier.keys = Narrowest(current + 1, under_tau);
    }
    layer.tier.values = layer.tier.keys;
  }
};

}  // namespace

std::unique_ptr<TierPolicy> MakeThresholdPolicy() { return std::make_unique<ThresholdPolicy>(); }

}  // namespace stria
