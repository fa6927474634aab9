#include "scheduler/kv_composer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace stria {
namespace {

constexpr double kSlack = 1.01;  // plans come in steps: one that misses the ratio by a hundredth will do

absl::Status CheckPlan(const PackOffer::Plan& plan, size_t index, size_t layers) {
  const auto fault = [&](auto... text) { return absl::InvalidArgumentError(absl::StrCat("plan ", index, " ", text...)); };
  if (plan.layers.size() != layers) return fault("has ", plan.layers.size(), " layers, the first has ", layers);
  if (plan.layers[0].kind == LayerAction::Kind::kInherit) return fault("lets the first layer inherit, and no layer is before it");
  for (const LayerAction& action : plan.layers) {
    if (action.kind == LayerAction::Kind::kLatent) return fault("has latents, which nothing serves yet");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOffer(PackOffer& offer) {
  if (offer.plans.empty()) return absl::InvalidArgumentError("it offers no plans");
  const size_t layers = offer.plans[0].layers.size();
  if (layers == 0) return absl::InvalidArgumentError("plan 0 has no layers");
  for (size_t i = 0; i < offer.plans.size(); ++i) {
    if (const absl::Status plan = CheckPlan(offer.plans[i], i, layers); !plan.ok()) return plan;
    offer.plans[i].ratio = RepresentationRatio(offer.plans[i].layers, /*kv_width=*/1);  // cancels out without latents
    if (i > 0 && offer.plans[i].ratio <= offer.plans[i - 1].ratio) {
      return absl::InvalidArgumentError(absl::StrFormat("plan %d makes a ratio of %.4g and the one before it %.4g: they must ascend", static_cast<int>(i),
                                                        offer.plans[i].ratio, offer.plans[i - 1].ratio));
    }
  }
  if (!(offer.lossless_ratio >= offer.least() && offer.lossless_ratio <= offer.most())) {
    return absl::InvalidArgumentError(absl::StrFormat("the lossless ratio is %.4g, its plans make %.4g to %.4g", offer.lossless_ratio, offer.least(), offer.most()));
  }
  return absl::OkStatus();
}

const PackOffer::Plan& LadderSelector::Select(std::span<const int32_t>, double ratio) const {
  for (const PackOffer::Plan& plan : offer_.plans) {
    if (plan.ratio * kSlack >= ratio) return plan;
  }
  return offer_.plans.back();
}

absl::StatusOr<Composition> ComposeRatio(const PackOffer& offer, const PlanSelector& selector, std::span<const int32_t> prompt, double ratio,
                                         std::optional<double> share) {
  STRIA_CHECK(!share || (*share > 0 && *share <= 1));
  const double representation = share ? ratio * *share : std::min(ratio, offer.lossless_ratio);
  if (representation * kSlack < offer.least() || representation > offer.most() * kSlack) {
    return absl::InvalidArgumentError(absl::StrFormat("'kv.ratio' %g leaves %.4g to the layers' widths, and this model's pack was made for %.4g to %.4g", ratio,
                                                      representation, offer.least(), offer.most()));
  }
  const PackOffer::Plan& plan = selector.Select(prompt, representation);
  // A plan may make more than was asked of it; then more of the prompt stays.
  return Composition{plan, share ? *share : std::min(1.0, plan.ratio / ratio)};
}

double RatioUnderPressure(const PackOffer& offer, double limit, double pressure) {
  const double most = std::clamp(limit, offer.least(), offer.most());
  const double part = std::clamp((pressure - kEase) / (kStrain - kEase), 0.0, 1.0);
  return offer.least() * std::pow(most / offer.least(), part);
}

absl::StatusOr<KvChoice> KvComposer::Compose(KvChoice choice, std::span<const int32_t> prompt, double pressure) const {
  if (choice.mode != KvChoice::Mode::kKaizen) return choice;
  choice.widen = choice.widen.value_or(!choice.ratio);
  if (!choice.ratio) {
    choice.layers = selector_->Select(prompt, RatioUnderPressure(offer_, limit_, pressure)).layers;
    return choice;
  }
  std::optional<double> share;
  if (choice.keep) share = choice.KeptShare(static_cast<uint32_t>(prompt.size()));
  absl::StatusOr<Composition> made = ComposeRatio(offer_, *selector_, prompt, *choice.ratio, share);
  if (!made.ok()) return made.status();
  choice.layers = std::move(made->plan.layers);
  if (!choice.keep && made->share < 1) choice.keep = made->share;
  choice.ratio.reset();
  return choice;
}

}  // namespace stria
