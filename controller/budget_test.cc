#include "controller/budget.h"

#include <cmath>

#include "base/random.h"
#include "controller/layer_state.h"
#include "controller/tier_policy.h"
#include "gtest/gtest.h"

namespace stria {
namespace {

using enum Width;

double Total(std::span<const Spender> spenders, std::span<const Width> widths) {
  double cost = 0;
  for (size_t i = 0; i < spenders.size(); ++i) cost += CostAt(spenders[i].cost, widths[i]);
  return cost;
}

int TotalBits(std::span<const Width> widths) {
  int bits = 0;
  for (const Width width : widths) bits += Bits(width);
  return bits;
}

std::vector<Spender> RandomSpenders(size_t count, uint64_t seed) {
  std::vector<Spender> spenders(count);
  for (size_t i = 0; i < count; ++i) {
    const double scale = std::exp(6 * Uniform(seed, 0, i) - 6);
    spenders[i].cost = {scale, scale / 20 * (0.5 + Uniform(seed, 1, i)), scale / 300};
  }
  return spenders;
}

TEST(SpendBudget, EverythingOrNothing) {
  const std::vector<Spender> spenders = RandomSpenders(20, 1);
  EXPECT_EQ(SpendBudget(spenders, 1e9), std::vector<Width>(20, kInt2));
  EXPECT_EQ(SpendBudget(spenders, 0), std::vector<Width>(20, kFp16));
  EXPECT_TRUE(SpendBudget({}, 1).empty());
}

TEST(SpendBudget, StaysWithinAndIsCloseToTheBestOfAll) {
  constexpr size_t kCount = 7;  // 4^7 plans
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<Spender> spenders = RandomSpenders(kCount, seed);
    const double budget = 0.02 + 0.3 * Uniform(seed, 9, 0);
    const std::vector<Width> widths = SpendBudget(spenders, budget);
    EXPECT_LE(Total(spenders, widths), budget);
    int best = TotalBits(widths);
    std::vector<Width> plan(kCount);
    for (int code = 0; code < 1 << (2 * kCount); ++code) {
      for (size_t i = 0; i < kCount; ++i) plan[i] = kAllWidths[(code >> (2 * i)) & 3];
      if (Total(spenders, plan) <= budget) best = std::min(best, TotalBits(plan));
    }
    // The greedy plan lies on the convex hull, one step (at most 8 bits) short of where the budget ends.
    EXPECT_LE(TotalBits(widths), best + 8) << seed;
  }
}

TEST(SpendBudget, CheapOnesGoFirst) {
  Spender cheap{.cost = {0.01, 0.001, 0}, .bounds = {}}, dear{.cost = {1, 0.1, 0.01}, .bounds = {}};
  EXPECT_EQ(SpendBudget(std::vector{dear, cheap}, 0.05), (std::vector{kInt8, kInt2}));
}

TEST(SpendBudget, BoundsHold) {
  Spender pinned{.cost = {1, 0.1, 0.01}, .bounds = {kInt4, kInt4}}, other{.cost = {1, 0.1, 0.01}, .bounds = {kInt4, kInt8}};
  EXPECT_EQ(SpendBudget(std::vector{pinned, other}, 1e-9), (std::vector{kInt4, kInt8})) << "even over budget";
  EXPECT_EQ(SpendBudget(std::vector{pinned, other}, 10), (std::vector{kInt4, kInt4}));
}

// A cost that is not convex in the width: INT8 no better than INT4 is skipped in one step.
TEST(SpendBudget, StepsOverPointsAboveTheHull) {
  EXPECT_EQ(SpendBudget(std::vector{Spender{.cost = {9, 0.01, 0.01}, .bounds = {}}}, 0.01), std::vector{kInt4});
}

class BudgetPolicyTest : public testing::Test {
 protected:
  BudgetPolicyTest() {
    settings_.policy = PolicyKind::kBudget;
    settings_.kl_budget = 0.052;
    settings_.alpha = 1;
    settings_.promote_band = 0.25;
    settings_.promote_after = 3;
    settings_.promote_at_once = 2;
    settings_.hysteresis = 0.25;
    settings_.demote_after = 5;
    for (int l = 0; l < 2; ++l) {
      calibration_.layers.push_back({.keys = {0.8, 0.032, 0.002}, .values = {0.2, 0.008, 0.0005}, .canary = {0.3, 0.012, 0.0004}});
    }
  }
  // Both layers read `ratio` times what they did in calibration.
  void Fire(double ratio) {
    for (LayerState& layer : layers_) {
      for (size_t i = 0; i < 3; ++i) layer.plain[i].Observe(ratio * calibration_.layers[0].canary[i], settings_.alpha);
    }
    Ask(Occasion::kFiring);
  }
  void Ask(Occasion occasion, bool calibrated = true) {
    const std::vector<Measured> measured(2, {.plain = true});
    MakeTierPolicy()->Decide({settings_, occasion, measured, calibrated ? &calibration_ : nullptr}, layers_);
  }
  int bits() const {
    int bits = 0;
    for (const LayerState& layer : layers_) bits += Bits(layer.tier.keys) + Bits(layer.tier.values);
    return bits;
  }

  Settings settings_;
  Calibration calibration_;
  std::vector<LayerState> layers_{2};
};

TEST_F(BudgetPolicyTest, SpendsAtTheFirstFiring) {
  Ask(Occasion::kSettings);
  EXPECT_EQ(bits(), 64) << "nothing was read yet";
  Fire(1);
  // Values at INT4 cost .008, keys .032 at INT4 and .002 at INT8: one layer's keys fit at INT4.
  EXPECT_EQ(layers_[0].tier.keys, kInt4);
  EXPECT_EQ(layers_[1].tier.keys, kInt8);
  EXPECT_EQ(layers_[0].tier.values, kInt4);
  EXPECT_EQ(layers_[1].tier.values, kInt4);
}

TEST_F(BudgetPolicyTest, WaitsInTheBandAndActsBeyondIt) {
  Fire(1);
  const int start = bits();
  for (int i = 0; i < 50; ++i) Fire(1.2);  // predicted .034 · 1.2 + .016 = .0568 of .052: in the band
  EXPECT_EQ(bits(), start);
  Fire(1.6);  // .0704: above 1.25 budgets
  Fire(1.6);
  EXPECT_EQ(bits(), start);
  Fire(1.6);
  EXPECT_GT(bits(), start);
  const int wide = bits();
  for (int i = 0; i < 4; ++i) Fire(0.5);
  EXPECT_EQ(bits(), wide);
  Fire(0.5);
  EXPECT_LT(bits(), wide);
  Fire(5);
  EXPECT_GE(bits(), wide) << "far above, at once";
}

TEST_F(BudgetPolicyTest, WithoutACalibrationNothingChanges) {
  for (LayerState& layer : layers_) layer.plain = {Ema(0, 9), Ema(0, 9), Ema(0, 9)};
  Ask(Occasion::kFiring, false);
  EXPECT_EQ(bits(), 64);
}

TEST_F(BudgetPolicyTest, OldReadingsWidenOnly) {
  Fire(1);
  const std::vector<LayerState> before = layers_;
  settings_.kl_budget = 10;
  Ask(Occasion::kSettingsStale);
  for (size_t l = 0; l < 2; ++l) EXPECT_EQ(layers_[l].tier, before[l].tier);
  Ask(Occasion::kSettings);
  EXPECT_EQ(bits(), 8);
  settings_.kl_budget = 1e-6;
  Ask(Occasion::kSettingsStale);
  EXPECT_EQ(bits(), 64);
}

TEST_F(BudgetPolicyTest, AnotherReferenceLengthMovesReadingsAndCalibrationAlike) {
  Fire(1);
  const std::vector<LayerState> before = layers_;
  settings_.reference_length = 1024;
  for (LayerState& layer : layers_) {
    for (Ema& ema : layer.plain) ema.Scale(0.5);
  }
  for (int i = 0; i < 9; ++i) Ask(Occasion::kFiring);
  for (size_t l = 0; l < 2; ++l) EXPECT_EQ(layers_[l].tier, before[l].tier);
}

}  // namespace
}  // namespace stria
