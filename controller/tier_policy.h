// From smoothed readings to widths. A policy is a function over plain state, so that the same code runs live, in the simulator
// and in tests.
#pragma once

#include <memory>
#include <span>

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

class TierPolicy {
 public:
  virtual ~TierPolicy() = default;
  // Updates `tier`, `decided` and `stable` of `layers`; leaves the EMAs alone. `measured` has one entry per layer, and says
  // of which kinds there is a new reading (looked at for kFiring only). Sees all layers at once, because a budget is spent
  // over all of them.
  virtual void Decide(const Settings& settings, Occasion occasion, std::span<const Measured> measured,
                      std::span<LayerState> layers) const = 0;
};

// EchoKV's rule with damping: the narrowest width whose EMA is under τ. A layer widens at once; it narrows after the EMA was
// under (1 − h)·τ for k firings, and without the wait when an operator moved the threshold. h = 0, k = 1 is the paper's rule.
// Values follow the keys. Guard width: the narrowest with EMA ≤ 4·τ, FP16 before the first reading.
std::unique_ptr<TierPolicy> MakeThresholdPolicy();

}  // namespace stria
