// From a `kaizen` request to a plan (DESIGN §4): how much of its ratio representation gives and how much eviction, or, without a ratio,
// what the memory at hand asks for; and which of a pack's plans that is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cache_plan.h"
#include "scheduler/kv_choice.h"

namespace stria {

// What a pack declares, without its tensors.
struct PackOffer {
  struct Plan {
    std::vector<LayerAction> layers;
    double ratio = 1;  // representation: C0 / Σc
  };
  std::string model;          // fingerprint of the model that it was made for
  double lossless_ratio = 1;  // representation up to which its makers measured no loss; least ≤ it ≤ most
  std::vector<Plan> plans;    // one at least, ratios ascending

  // The representation ratios that it was made for.
  double least() const { return plans.front().ratio; }
  double most() const { return plans.back().ratio; }
};

// InvalidArgument: no plans, plans of different or no layers, a first layer that inherits, latents (nothing serves them yet), ratios that do not
// ascend, or a lossless ratio outside of theirs. Fills in the plans' ratios.
absl::Status CheckOffer(PackOffer& offer);

// Picks a plan of at least a representation ratio within the offer's range for a prompt.
class PlanSelector {
 public:
  virtual ~PlanSelector() = default;
  virtual const PackOffer::Plan& Select(std::span<const int32_t> prompt, double ratio) const = 0;
};

// The plan of the smallest ratio that will do, whatever the prompt: for packs without a selector of their own.
class LadderSelector final : public PlanSelector {
 public:
  explicit LadderSelector(const PackOffer& offer) : offer_(offer) {}  // which outlives this
  const PackOffer::Plan& Select(std::span<const int32_t> prompt, double ratio) const override;

 private:
  const PackOffer& offer_;
};

struct Composition {
  PackOffer::Plan plan;
  double share = 1;  // of the prompt that stays, (0, 1]
};

// A request with a ratio. With `share` given, that share stays and representation makes ratio · share; without, representation goes up to
// the pack's lossless ratio and eviction does the rest. InvalidArgument: representation outside the pack's range, with the numbers.
absl::StatusOr<Composition> ComposeRatio(const PackOffer& offer, const PlanSelector& selector, std::span<const int32_t> prompt, double ratio,
                                         std::optional<double> share);

// Without a ratio. `pressure`: the share of the cache memory that is taken, 0 to 1. Up to kEase of it the request gets the pack's least ratio, from
// kStrain on `limit`, which the deployment allows (cut to the pack's range), between them what lies between on a logarithmic scale.
inline constexpr double kEase = 0.5, kStrain = 0.9;
double RatioUnderPressure(const PackOffer& offer, double limit, double pressure);

// Composes for one model. `offer` passed CheckOffer; `limit`: as above; without a selector the ladder chooses.
class KvComposer {
 public:
  KvComposer(PackOffer offer, double limit, std::unique_ptr<PlanSelector> selector = nullptr)
      : offer_(std::move(offer)), limit_(limit), selector_(std::move(selector)) {
    if (selector_ == nullptr) selector_ = std::make_unique<LadderSelector>(offer_);
  }
  KvComposer(const KvComposer&) = delete;
  KvComposer& operator=(const KvComposer&) = delete;

  const PackOffer& offer() const { return offer_; }

  // A choice of mode kKaizen with its layers, the share that stays and whether it is widened; its ratio is dealt with. Other choices come back
  // as they are. InvalidArgument: as ComposeRatio.
  absl::StatusOr<KvChoice> Compose(KvChoice choice, std::span<const int32_t> prompt, double pressure) const;

 private:
  const PackOffer offer_;
  const double limit_;
  std::unique_ptr<PlanSelector> selector_;
};

}  // namespace stria
