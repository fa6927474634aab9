#include "controller/tier_policy.h"

#include <vector>

#include "base/random.h"
#include "controller/vote.h"
#include "gtest/gtest.h"

namespace stria {
namespace {

using Readings = std::array<double, 3>;  // at INT2, INT4, INT8

// One layer under the threshold rule, fed as the controller feeds it.
class OneLayer {
 public:
  explicit OneLayer(Settings settings) : settings_(settings) {}

  Width Fire(Readings readings) {
    for (size_t i = 0; i < 3; ++i) layer_.plain[i].Observe(readings[i], settings_.alpha);
    return Ask(Occasion::kFiring, {.plain = true});
  }
  Width Change(Settings settings, Occasion occasion) {
    settings_ = settings;
    return Ask(occasion, {});
  }
  const LayerState& state() const { return layer_; }
  LayerState& state() { return layer_; }
  Width Ask(Occasion occasion, Measured measured) {
    policy_->Decide({settings_, occasion, {&measured, 1}}, {&layer_, 1});
    EXPECT_EQ(layer_.tier.values, layer_.tier.keys);
    return layer_.tier.keys;
  }

 private:
  Settings settings_;
  std::unique_ptr<TierPolicy> policy_ = MakeThresholdPolicy();
  LayerState layer_;
};

Settings Rule(double tau, double h, uint32_t k, double alpha = 1) {
  Settings settings;
  settings.tau = tau;
  settings.hysteresis = h;
  settings.demote_after = k;
  settings.alpha = alpha;
  settings.promote_band = 0;
  settings.promote_after = 1;
  return settings;
}

TEST(Ema, FirstObservationInitialises) {
  Ema ema;
  EXPECT_FALSE(ema.valid());
  ema.Observe(0.5, 0.1);
  EXPECT_EQ(ema.value(), 0.5);
  ema.Observe(1.5, 0.1);
  EXPECT_DOUBLE_EQ(ema.value(), 0.6);  // 0.9 · 0.5 + 0.1 · 1.5
  EXPECT_EQ(ema.count(), 2u);
}

TEST(ThresholdPolicy, FirstReadingSetsTheTierWithoutWaiting) {
  EXPECT_EQ(OneLayer(Rule(0.022, 0.2, 3)).Fire({0.021, 0.004, 0.001}), Width::kInt2);
  EXPECT_EQ(OneLayer(Rule(0.022, 0.2, 3)).Fire({0.3, 0.021, 0.001}), Width::kInt4);
  EXPECT_EQ(OneLayer(Rule(0.022, 0.2, 3)).Fire({0.3, 0.1, 0.001}), Width::kInt8);
  EXPECT_EQ(OneLayer(Rule(0.022, 0.2, 3)).Fire({0.3, 0.1, 0.05}), Width::kFp16);
  EXPECT_EQ(OneLayer(Rule(0.022, 0.2, 3)).Fire({0.3, 0.022, 0.001}), Width::kInt8) << "under, not at, tau";
}

TEST(ThresholdPolicy, NothingBeforeTheFirstReading) {
  OneLayer layer(Rule(0.022, 0.2, 3));
  EXPECT_EQ(layer.Change(Rule(10, 0, 1), Occasion::kSettings), Width::kFp16);
  EXPECT_EQ(layer.state().tier, LayerTier{});
  // A latent reading moves the latent guard and nothing else.
  for (Ema& ema : layer.state().latent) ema.Observe(50, 0.1);
  EXPECT_EQ(layer.Ask(Occasion::kFiring, {.latent = true}), Width::kFp16);
  EXPECT_EQ(layer.state().tier.guard_latent, Width::kFp16);
  EXPECT_EQ(layer.state().tier.guard_plain, Width::kInt2) << "which widens nothing";
}

TEST(ThresholdPolicy, WidensAtOnce) {
  OneLayer layer(Rule(0.022, 0.2, 3));
  ASSERT_EQ(layer.Fire({0.01, 0.002, 0.0001}), Width::kInt2);
  EXPECT_EQ(layer.Fire({0.03, 0.002, 0.0001}), Width::kInt4);
  EXPECT_EQ(layer.Fire({9, 9, 9}), Width::kFp16) << "over two widths in one go";
}

TEST(ThresholdPolicy, NarrowsAfterKFiringsUnderTheBand) {
  OneLayer layer(Rule(0.1, 0.2, 3));
  ASSERT_EQ(layer.Fire({1, 0.5, 0.01}), Width::kInt8);
  EXPECT_EQ(layer.Fire({1, 0.079, 0.01}), Width::kInt8);
  EXPECT_EQ(layer.Fire({1, 0.079, 0.01}), Width::kInt8);
  EXPECT_EQ(layer.Fire({1, 0.09, 0.01}), Width::kInt8) << "in the band: the count starts again";
  EXPECT_EQ(layer.Fire({1, 0.079, 0.01}), Width::kInt8);
  EXPECT_EQ(layer.Fire({1, 0.079, 0.01}), Width::kInt8);
  EXPECT_EQ(layer.Fire({1, 0.079, 0.01}), Width::kInt4);
  EXPECT_EQ(layer.Fire({1, 0.099, 0.01}), Width::kInt4) << "in the band, what is in force stays";
  EXPECT_EQ(layer.Fire({1, 0.1, 0.01}), Width::kInt8);
}

TEST(ThresholdPolicy, CountsEachWidthApart) {
  OneLayer layer(Rule(0.1, 0, 2));
  ASSERT_EQ(layer.Fire({1, 1, 1}), Width::kFp16);
  EXPECT_EQ(layer.Fire({1, 0.05, 0.05}), Width::kFp16);
  EXPECT_EQ(layer.Fire({0.05, 0.05, 0.05}), Width::kInt4) << "INT2 was safe only once";
  EXPECT_EQ(layer.Fire({0.05, 0.05, 0.05}), Width::kInt2);
}

// A reading that alternates around τ: the paper's rule flips at every firing, ours once (to the safe side) and never back.
TEST(ThresholdPolicy, HysteresisStopsFlapping) {
  const auto flips = [](Settings settings) {
    OneLayer layer(settings);
    Width before = layer.Fire({1, 0.0215, 0.001});
    int flips = 0;
    for (int i = 0; i < 100; ++i) {
      const Width now = layer.Fire({1, i % 2 ? 0.0215 : 0.0225, 0.001});
      flips += now != before;
      before = now;
    }
    return flips;
  };
  EXPECT_EQ(flips(Rule(0.022, 0, 1)), 100);
  EXPECT_EQ(flips(Rule(0.022, 0.2, 3)), 1);
}

TEST(ThresholdPolicy, WithoutDampingItIsTheArgminOfThePaper) {
  OneLayer layer(Rule(0.02, 0, 1, 0.1));
  std::array<double, 3> ema{};
  for (uint64_t i = 0; i < 5000; ++i) {
    Readings readings;  // not even ordered by width
    for (size_t b = 0; b < 3; ++b) readings[b] = 0.04 * Uniform(1, b, i / 40) + 0.01 * Uniform(2, b, i);
    for (size_t b = 0; b < 3; ++b) ema[b] = i == 0 ? readings[b] : ema[b] + 0.1 * (readings[b] - ema[b]);
    const Width expected = ema[0] < 0.02   ? Width::kInt2
                           : ema[1] < 0.02 ? Width::kInt4
                           : ema[2] < 0.02 ? Width::kInt8
                                           : Width::kFp16;
    ASSERT_EQ(layer.Fire(readings), expected) << i;
  }
}

TEST(ThresholdPolicy, AMovedThresholdActsAtOnceOnFreshReadings) {
  OneLayer layer(Rule(0.022, 0.2, 3));
  ASSERT_EQ(layer.Fire({0.3, 0.03, 0.004}), Width::kInt8);
  EXPECT_EQ(layer.Change(Rule(0.05, 0.2, 3), Occasion::kSettings), Width::kInt4);
  EXPECT_EQ(layer.Change(Rule(0.022, 0.2, 3), Occasion::kSettings), Width::kInt8);
  EXPECT_EQ(layer.Change(Rule(0.032, 0.2, 3), Occasion::kSettings), Width::kInt8) << "in the band";
}

TEST(ThresholdPolicy, OldReadingsWidenButNeverNarrow) {
  OneLayer layer(Rule(0.022, 0.2, 3));
  ASSERT_EQ(layer.Fire({0.3, 0.03, 0.004}), Width::kInt8);
  ASSERT_EQ(layer.state().tier.guard_plain, Width::kInt4);
  EXPECT_EQ(layer.Change(Rule(5, 0.2, 3), Occasion::kSettingsStale), Width::kInt8);
  EXPECT_EQ(layer.state().tier.guard_plain, Width::kInt4);
  EXPECT_EQ(layer.Fire({0.3, 0.03, 0.004}), Width::kInt8);
  EXPECT_EQ(layer.Fire({0.3, 0.03, 0.004}), Width::kInt8);
  EXPECT_EQ(layer.Fire({0.3, 0.03, 0.004}), Width::kInt2) << "three new readings prove it";
  EXPECT_EQ(layer.Change(Rule(0.0001, 0.2, 3), Occasion::kSettingsStale), Width::kFp16);
}

Settings Damped() {
  Settings settings = Rule(0.1, 0.25, 5);
  settings.promote_band = 0.25;
  settings.promote_after = 3;
  settings.promote_at_once = 2;
  return settings;
}

TEST(ThresholdPolicy, WidensAfterNFiringsAboveTheBand) {
  OneLayer layer(Damped());
  ASSERT_EQ(layer.Fire({1, 0.09, 0.01}), Width::kInt4);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(layer.Fire({1, 0.124, 0.01}), Width::kInt4) << "in the band";
  EXPECT_EQ(layer.Fire({1, 0.126, 0.01}), Width::kInt4);
  EXPECT_EQ(layer.Fire({1, 0.126, 0.01}), Width::kInt4);
  EXPECT_EQ(layer.Fire({1, 0.11, 0.01}), Width::kInt4) << "the count starts again";
  EXPECT_EQ(layer.Fire({1, 0.126, 0.01}), Width::kInt4);
  EXPECT_EQ(layer.Fire({1, 0.126, 0.01}), Width::kInt4);
  EXPECT_EQ(layer.Fire({1, 0.126, 0.01}), Width::kInt8);
  EXPECT_EQ(layer.Fire({1, 0.126, 0.201}), Width::kFp16) << "far above: at once";
}

TEST(ThresholdPolicy, ACalibrationSetsTheFirstWidthNotTheFirstReading) {
  LayerState layer;
  Calibration calibration;
  calibration.layers.push_back({.keys = {}, .values = {}, .canary = {1, 0.09, 0.01}});
  const Measured measured{.plain = true};
  Settings settings = Damped();
  for (Ema& ema : layer.plain) ema.Observe(0.11, 1);
  MakeThresholdPolicy()->Decide({settings, Occasion::kFiring, {&measured, 1}, &calibration}, {&layer, 1});
  EXPECT_EQ(layer.tier.keys, Width::kInt4);
  // At a sixteenth of the reference length readings and τ mean a quarter.
  layer = {};
  settings.reference_length = 256;
  settings.tau = 0.026;
  for (Ema& ema : layer.plain) ema.Observe(0.03, 1);
  MakeThresholdPolicy()->Decide({settings, Occasion::kFiring, {&measured, 1}, &calibration}, {&layer, 1});
  EXPECT_EQ(layer.tier.keys, Width::kInt4);
}

TEST(ThresholdPolicy, GuardAllowsFourTau) {
  OneLayer layer(Rule(0.022, 0.2, 3));
  layer.Fire({0.4, 0.088, 0.03});
  EXPECT_EQ(layer.state().tier.guard_plain, Width::kInt4);
  layer.Fire({0.4, 0.0881, 0.03});
  EXPECT_EQ(layer.state().tier.guard_plain, Width::kInt8);
}

TEST(MajorityWidth, TiesGoToTheWider) {
  using enum Width;
  EXPECT_EQ(MajorityWidth({}), kFp16);
  EXPECT_EQ(MajorityWidth(std::vector{kInt4}), kInt4);
  EXPECT_EQ(MajorityWidth(std::vector{kInt2, kInt2, kFp16}), kInt2);
  EXPECT_EQ(MajorityWidth(std::vector{kInt2, kInt2, kInt8, kInt8}), kInt8);
  EXPECT_EQ(MajorityWidth(std::vector{kInt2, kInt4, kInt8, kFp16}), kFp16);
}

}  // namespace
}  // namespace stria
