// From smoothed readings to widths. A policy is a function over plain state, so that the same code runs live, in the simulator
// and in tests.
#pragma once

#include <memory>
#include <span>

#include "controller/calibration.h"
#include "controller/layer_state.h"
#include "controller/settings.h"

namespace stria {

// Why a policy is asked.
enum class Occasion {
  kFiring,         // new readings were folded into the EMAs of the measured layers
  kSettings,       // an operator changed the rule and readings are fresh
  kSettingsStale,  // an operator changed the rule after a silence: may widen, narrows nothing
};

struct Measured {
  bool plain = false, latent = false;
};

struct Question {
  const Settings& settings;
  Occasion occasion;
  std::span<const Measured> measured;        // [layer]: kinds with a new reading; looked at for kFiring only
  const Calibration* calibration = nullptr;  // of this model, with as many layers; nullptr: there is none
};

class TierPolicy {
 public:
  virtual ~TierPolicy() = default;
  // Updates everything in `layers` but the EMAs. Sees all layers at once, because a budget is spent over all of them. Bounds and
  // pins are put over the answer by who publishes it; a policy may take them into account.
  virtual void Decide(const Question& question, std::span<LayerState> layers) const = 0;
};

// EchoKV's rule with damping on both sides: the narrowest width whose EMA is under τ, where
//   a layer widens after n firings with the EMA at its width ≥ (1 + u)·τ, at once above promote_at_once·τ;
//   it narrows after k firings with the EMA at the narrower width under (1 − h)·τ.
// A calibration's readings decide the first widths, where there is one; else the first reading does. When an operator moves the
// threshold nothing is waited for. u = h = 0, n = k = 1 is the paper's rule. Values follow the keys.
std::unique_ptr<TierPolicy> MakeThresholdPolicy();

// Spends `kl_budget` over keys and values of all layers so that the cache is smallest (controller/budget.h). The cost of a layer's
// keys is its calibration's times live over calibrated canary reading; of its values, which no canary sees, its calibration's.
// A plan is replaced after n firings with its predicted KL ≥ (1 + u)·budget, at once above promote_at_once·budget, and after k
// firings with it under (1 − h)·budget. Without a calibration nothing changes.
std::unique_ptr<TierPolicy> MakeBudgetPolicy();

// The one that the settings choose.
std::unique_ptr<TierPolicy> MakeTierPolicy();

// A layer's calibrated canary reading in the unit of today's readings (index into kReadingWidths).
double CalibratedReading(const Calibration& calibration, const Settings& settings, size_t layer, size_t width);

// The guard width of one kind under all policies: the narrowest with EMA ≤ 4·τ, INT2 (nothing is widened) before the first reading.
// Old evidence may widen it, never narrow it.
void UpdateGuards(const Settings& settings, Occasion occasion, LayerState& layer);

}  // namespace stria
