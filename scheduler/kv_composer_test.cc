#include "scheduler/kv_composer.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace stria {
namespace {

LayerAction Plain(Width width) { return {.kind = LayerAction::Kind::kPlain, .keys = width, .values = width, .rank = 0, .latent = Width::kFp16}; }
const LayerAction kInherits{.kind = LayerAction::Kind::kInherit, .keys = Width::kFp16, .values = Width::kFp16, .rank = 0, .latent = Width::kFp16};

// Four layers: everything at FP16 (1), at INT8 (2), at INT4 (4), and half of that layers only (8).
PackOffer Offer() {
  PackOffer offer;
  offer.lossless_ratio = 4;
  for (Width width : {Width::kFp16, Width::kInt8, Width::kInt4}) offer.plans.push_back({std::vector<LayerAction>(4, Plain(width)), 0});
  offer.plans.push_back({{Plain(Width::kInt4), kInherits, Plain(Width::kInt4), kInherits}, 0});
  EXPECT_TRUE(CheckOffer(offer).ok());
  return offer;
}

std::pair<double, double> Compose(double ratio, std::optional<double> share = std::nullopt) {
  const PackOffer offer = Offer();
  const auto made = ComposeRatio(offer, LadderSelector(offer), {}, ratio, share);
  EXPECT_TRUE(made.ok()) << made.status();
  return {made->plan.ratio, made->share};
}

TEST(ComposeRatio, RepresentationIsLosslessFirstAndEvictionDoesTheRest) {
  EXPECT_EQ(Compose(1), std::pair(1., 1.));
  EXPECT_EQ(Compose(2), std::pair(2., 1.));
  EXPECT_EQ(Compose(4), std::pair(4., 1.));
  EXPECT_EQ(Compose(32), std::pair(4., 1. / 8));
  EXPECT_EQ(Compose(6), std::pair(4., 4. / 6));
  EXPECT_EQ(Compose(3), std::pair(4., 1.)) << "no plan lies between: more than was asked, and nothing evicted";
}

TEST(ComposeRatio, WithAShareRepresentationMakesTheRest) {
  EXPECT_EQ(Compose(32, 1. / 8), std::pair(4., 1. / 8));
  EXPECT_EQ(Compose(16, 0.5), std::pair(8., 0.5)) << "beyond lossless, because the client said so";
  EXPECT_EQ(Compose(2, 0.5), std::pair(1., 0.5));
  EXPECT_EQ(Compose(2, 1), std::pair(2., 1.));
}

TEST(ComposeRatio, OutsideThePacksRangeIsRefusedWithTheNumbers) {
  PackOffer offer = Offer();
  const auto message = [&](double ratio, std::optional<double> share) {
    return std::string(ComposeRatio(offer, LadderSelector(offer), {}, ratio, share).status().message());
  };
  EXPECT_EQ(message(32, 0.5), "'kv.ratio' 32 leaves 16 to the layers' widths, and this model's pack was made for 1 to 8");
  EXPECT_EQ(message(2, 0.25), "'kv.ratio' 2 leaves 0.5 to the layers' widths, and this model's pack was made for 1 to 8");
  EXPECT_EQ(message(16.1, 0.5), "") << "a hundredth is no matter";
  offer.plans.erase(offer.plans.begin());
  EXPECT_EQ(message(1.5, std::nullopt), "'kv.ratio' 1.5 leaves 1.5 to the layers' widths, and this model's pack was made for 2 to 8");
}

TEST(RatioUnderPressure, SpareMemoryCostsNothingAndFullMemoryStaysWithinTheLimit) {
  const PackOffer offer = Offer();
  double last = 0;
  for (double pressure = 0; pressure <= 1; pressure += 0.01) {
    const double ratio = RatioUnderPressure(offer, 4, pressure);
    EXPECT_GE(ratio, last);
    last = ratio;
    if (pressure <= kEase) {
      EXPECT_EQ(ratio, 1);
    } else if (pressure >= kStrain) {
      EXPECT_DOUBLE_EQ(ratio, 4);
    }
  }
  EXPECT_NEAR(RatioUnderPressure(offer, 4, (kEase + kStrain) / 2), 2, 1e-9);
  EXPECT_DOUBLE_EQ(RatioUnderPressure(offer, 100, 1), 8) << "no further than the pack";
  EXPECT_DOUBLE_EQ(RatioUnderPressure(offer, 0.1, 1), 1);
}

TEST(CheckOffer, RefusesWhatCannotBeServed) {
  const auto message = [](auto edit) {
    PackOffer offer = Offer();
    edit(offer);
    return std::string(CheckOffer(offer).message());
  };
  EXPECT_EQ(message([](PackOffer&) {}), "");
  EXPECT_EQ(message([](PackOffer& offer) { offer.plans.clear(); }), "it offers no plans");
  EXPECT_EQ(message([](PackOffer& offer) { offer.plans[0].layers.clear(); }), "plan 0 has no layers");
  EXPECT_EQ(message([](PackOffer& offer) { offer.plans[1].layers.pop_back(); }), "plan 1 has 3 layers, the first has 4");
  EXPECT_EQ(message([](PackOffer& offer) { offer.plans[3].layers[0] = kInherits; }), "plan 3 lets the first layer inherit, and no layer is before it");
  EXPECT_EQ(message([](PackOffer& offer) { offer.plans[2].layers[2].kind = LayerAction::Kind::kLatent; }), "plan 2 has latents, which nothing serves yet");
  EXPECT_EQ(message([](PackOffer& offer) { std::swap(offer.plans[1], offer.plans[2]); }), "plan 2 makes a ratio of 2 and the one before it 4: they must ascend");
  EXPECT_EQ(message([](PackOffer& offer) { offer.lossless_ratio = 9; }), "the lossless ratio is 9, its plans make 1 to 8");
  EXPECT_EQ(message([](PackOffer& offer) { offer.lossless_ratio = std::nan(""); }), "the lossless ratio is nan, its plans make 1 to 8");
}

KvChoice Kaizen() {
  KvChoice choice;
  choice.mode = KvChoice::Mode::kKaizen;
  return choice;
}

TEST(KvComposer, WithARatioTheGuardIsOffAndTheRatioIsDealtWith) {
  const KvComposer composer(Offer(), /*limit=*/4);
  const std::vector<int32_t> prompt(2000, 7);
  KvChoice choice = Kaizen();
  choice.ratio = 32;
  auto made = composer.Compose(choice, prompt, /*pressure=*/0);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->Describe(), "kaizen: 4×int4, keep 0.125");
  EXPECT_FALSE(*made->widen);
  const absl::StatusOr<CachePlan> plan = made->Plan(4, 2000);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->keep_tokens, 250u);
  EXPECT_FALSE(plan->widen);
  EXPECT_FALSE(plan->follow_tiers);
  choice.keep = 500;  // tokens: a quarter, so that representation makes 8
  choice.widen = true;
  made = composer.Compose(choice, prompt, 0);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->Describe(), "kaizen: 1×int4 1×inherit 1×int4 1×inherit, keep 500");
  EXPECT_TRUE(made->Plan(4, 2000)->widen);
  EXPECT_EQ(made->Plan(4, 2000)->keep_tokens, 500u);
}

TEST(KvComposer, WithoutARatioItFollowsThePressureAndIsGuarded) {
  const KvComposer composer(Offer(), /*limit=*/4);
  const std::vector<int32_t> prompt(2000, 7);
  const auto text = [&](double pressure) { return composer.Compose(Kaizen(), prompt, pressure)->Describe(); };
  EXPECT_EQ(text(0.2), "kaizen: 4×fp16");
  EXPECT_EQ(text(0.6), "kaizen: 4×int8");
  EXPECT_EQ(text(1), "kaizen: 4×int4");
  EXPECT_TRUE(composer.Compose(Kaizen(), prompt, 1)->Plan(4, 2000)->widen);
  KvChoice choice = Kaizen();
  choice.widen = false;
  choice.keep = 0.25;
  const auto made = composer.Compose(choice, prompt, 1);
  EXPECT_FALSE(made->Plan(4, 2000)->widen);
  EXPECT_EQ(made->Describe(), "kaizen: 4×int4, keep 0.25") << "eviction only where it is asked for";
}

TEST(KvComposer, LeavesOtherModesAlone) {
  KvChoice choice;
  choice.mode = KvChoice::Mode::kFixed;
  choice.width = Width::kInt2;
  choice.ratio = 16;
  EXPECT_EQ(KvComposer(Offer(), 4).Compose(choice, std::vector<int32_t>(10), 1)->Describe(), choice.Describe());
}

}  // namespace
}  // namespace stria
