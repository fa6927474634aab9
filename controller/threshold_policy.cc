#include <algorithm>

#include "controller/tier_policy.h"

namespace stria {
namespace {

class ThresholdPolicy final : public TierPolicy {
 public:
  void Decide(const Question& question, std::span<LayerState> layers) const override {
    for (size_t l = 0; l < layers.size(); ++l) {
      LayerState& layer = layers[l];
      UpdateGuards(question.settings, question.occasion, layer);
      if (!layer.plain[0].valid() || (question.occasion == Occasion::kFiring && !question.measured[l].plain)) continue;
      if (!layer.decided) {
        if (question.occasion != Occasion::kFiring) continue;
        layer.decided = true;
        layer.tier.keys = FirstWidth(question, l, layer);
      }
      Count(question, layer);
      layer.tier.keys = Move(question.settings, layer);
      layer.tier.values = layer.tier.keys;
    }
  }

 private:
  static Width FirstWidth(const Question& question, size_t l, const LayerState& layer) {
    return NarrowestWidth(0, [&](size_t i) {
      const double reading = question.calibration == nullptr
                                 ? layer.plain[i].value()
                                 : CalibratedReading(*question.calibration, question.settings, l, i);
      return reading < question.settings.tau;
    });
  }

  // Updates the layer's counts of firings. A moved threshold is no noise, so there is nothing to wait for; but a silent model's
  // EMAs prove nothing any more, so they narrow nothing.
  static void Count(const Question& question, LayerState& layer) {
    const Settings& s = question.settings;
    const auto advance = [&](uint32_t count, uint32_t wait) {
      return question.occasion == Occasion::kFiring ? std::min(count, wait - 1) + 1 : wait;
    };
    for (size_t i = 0; i < kReadingWidths.size(); ++i) {
      const bool under = layer.plain[i].value() < (1 - s.hysteresis) * s.tau;
      const bool counts = under && question.occasion != Occasion::kSettingsStale;
      layer.stable[i] = counts ? advance(layer.stable[i], s.demote_after) : 0;
    }
    const size_t current = ReadingIndex(layer.tier.keys);
    if (current == kReadingWidths.size()) {
      layer.above = 0;
      return;
    }
    const double reading = layer.plain[current].value();
    if (reading > s.promote_at_once * s.tau) {
      layer.above = s.promote_after;
    } else {
      layer.above = reading >= (1 + s.promote_band) * s.tau ? advance(layer.above, s.promote_after) : 0;
    }
  }

  static Width Move(const Settings& s, LayerState& layer) {
    const size_t current = ReadingIndex(layer.tier.keys);
    const Width narrower =
        NarrowestWidth(0, [&](size_t i) { return i < current && layer.stable[i] >= s.demote_after; });
    if (narrower != Width::kFp16) {
      layer.above = 0;
      return narrower;
    }
    if (layer.above < s.promote_after) return layer.tier.keys;
    layer.above = 0;
    return NarrowestWidth(current + 1, [&](size_t i) { return layer.plain[i].value() < s.tau; });
  }
};

}  // namespace

std::unique_ptr<TierPolicy> MakeThresholdPolicy() { return std::make_unique<ThresholdPolicy>(); }

}  // namespace stria
