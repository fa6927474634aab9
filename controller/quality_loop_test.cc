#include "controller/quality_loop.h"

#include <cmath>
#include <deque>
#include <functional>

#include "base/random.h"
#include "gtest/gtest.h"

namespace stria {
namespace {

using std::chrono::seconds;

Settings WithTarget(double kl, double tau = 0.022) {
  Settings settings;
  settings.tau = tau;
  settings.target_kl = kl;
  return settings;
}

// Feeds one frame of 100 tokens of the same KL, a second after the one before.
struct Driver {
  QualityState state;
  Settings settings = WithTarget(0.005);
  MonotonicTime now{};
  int steps = 0;

  void Feed(double kl, double tokens = 100) {
    now += seconds(1);
    const QualityReading reading{512, static_cast<uint64_t>(tokens), kl * tokens};
    steps += StepLoop(state, Measure(state, {&reading, 1}), settings, now).has_value();
  }
  double tau() const { return InForce(state.loop, settings).tau; }
};

TEST(TokenMean, FadesByTokens) {
  TokenMean mean;
  EXPECT_FALSE(mean.valid());
  mean.Add(100, 50, 1000);
  EXPECT_DOUBLE_EQ(mean.mean(), 0.5) << "no invented start";
  EXPECT_DOUBLE_EQ(mean.weight(), 100);
  mean.Add(1000, 0, 1000);
  EXPECT_NEAR(mean.mean(), 50 * std::exp(-1.0) / (100 * std::exp(-1.0) + 1000), 1e-12);
  for (int i = 0; i < 100; ++i) mean.Add(1000, 250, 1000);
  EXPECT_NEAR(mean.mean(), 0.25, 1e-9);
  EXPECT_LT(mean.weight(), 1600);
}

TEST(QualityLoop, BeginsAtThePinnedValueAndMovesFromThere) {
  Driver driver;
  EXPECT_EQ(driver.tau(), 0.022);
  driver.Feed(0.02, 200);
  EXPECT_FALSE(driver.state.loop.engaged) << "too little was measured";
  EXPECT_EQ(driver.tau(), 0.022);
  driver.Feed(0.02);
  EXPECT_TRUE(driver.state.loop.engaged);
  EXPECT_EQ(driver.steps, 1) << "the beginning is history";
  EXPECT_NEAR(driver.tau(), 0.022, 0.022 * 0.05) << "bumpless";
  EXPECT_LT(driver.tau(), 0.022);
  const double before = driver.tau();
  for (int i = 0; i < 10; ++i) driver.Feed(0.02);
  EXPECT_LT(driver.tau(), 0.85 * before);
}

TEST(QualityLoop, StandsStillJustUnderTheTargetAndWithoutOne) {
  Driver driver;
  for (int i = 0; i < 200; ++i) driver.Feed(0.0045);
  EXPECT_DOUBLE_EQ(driver.tau(), 0.022);
  driver.settings.target_kl = 0;
  for (int i = 0; i < 200; ++i) driver.Feed(0.5);
  EXPECT_DOUBLE_EQ(driver.tau(), 0.022);
  EXPECT_EQ(driver.state.tokens, 40'000u) << "measured all the same";
}

TEST(QualityLoop, ClampsWithoutWindingUp) {
  Driver driver;
  driver.settings.target_range = 4;
  for (int i = 0; i < 5000; ++i) driver.Feed(1e-6);
  EXPECT_NEAR(driver.tau(), 0.088, 1e-9);
  EXPECT_EQ(AtBound(driver.state.loop, driver.settings), 1);
  int frames = 0;
  while (driver.tau() > 0.07 && frames < 1000) driver.Feed(0.05), ++frames;
  EXPECT_LT(frames, 30) << "what it could not move by is forgotten";
  EXPECT_EQ(AtBound(driver.state.loop, driver.settings), 0);
  for (int i = 0; i < 5000; ++i) driver.Feed(0.05);
  EXPECT_NEAR(driver.tau(), 0.0055, 1e-9);
  EXPECT_EQ(AtBound(driver.state.loop, driver.settings), -1);
}

TEST(QualityLoop, MovesTheBudgetUnderTheBudgetPolicy) {
  Driver driver;
  driver.settings.policy = PolicyKind::kBudget;
  for (int i = 0; i < 100; ++i) driver.Feed(0.02);
  const Settings in_force = InForce(driver.state.loop, driver.settings);
  EXPECT_LT(in_force.kl_budget, 0.8 * driver.settings.kl_budget);
  EXPECT_EQ(in_force.tau, 0.022);
}

TEST(QualityLoop, HandsOver) {
  Driver driver;
  for (int i = 0; i < 100; ++i) driver.Feed(0.02);
  const double found = driver.tau();
  ASSERT_LT(found, 0.02);
  Settings next = driver.settings;
  next.target_kl = 0.01;
  next.alpha = 0.5;
  HandOver(driver.state.loop, driver.settings, next);
  EXPECT_DOUBLE_EQ(InForce(driver.state.loop, next).tau, found) << "another target goes on from there";
  QualityLoop off = driver.state.loop;
  Settings none = next;
  none.target_kl = 0;
  HandOver(off, next, none);
  EXPECT_EQ(InForce(off, none).tau, 0.022) << "back to what is pinned";
  HandOver(off, none, next);
  EXPECT_EQ(InForce(off, next).tau, 0.022) << "and from there again";
  Settings by_hand = next;
  by_hand.tau = 0.05;
  HandOver(driver.state.loop, next, by_hand);
  EXPECT_EQ(InForce(driver.state.loop, by_hand).tau, 0.05);
  EXPECT_FALSE(driver.state.loop.engaged);
}

TEST(QualityLoop, AFleetIsSteeredNoFasterThanItsPagesAge) {
  Driver one, fleet;
  for (int i = 0; i < 30; ++i) one.Feed(0.02, 200);
  for (int second = 0; second < 30; ++second) {
    fleet.now += seconds(1);
    for (int worker = 0; worker < 100; ++worker) {
      fleet.now -= seconds(1);  // Feed() goes a second on; the whole fleet speaks within one
      fleet.Feed(0.02, 200);
    }
  }
  EXPECT_NEAR(std::log(fleet.tau()), std::log(one.tau()), 0.4);
}

// A plant like the measured one: KL grows with a power of τ at the time when the pages were sealed, which is up to `lag` tokens ago; a
// token's KL is drawn with the heavy tail that next-token KLs have.
struct Plant {
  double gain, level, lag;  // KL = level · (τ / 0.022)^gain
  uint64_t draws = 0;
  std::deque<std::pair<double, double>> sealed = {};  // tokens, ln τ

  // Mean KL of one frame's tokens.
  double Frame(double tau, double tokens) {
    sealed.push_back({tokens, std::log(tau / 0.022)});
    double held = 0, sum = 0;
    for (const auto& [count, log_tau] : sealed) held += count, sum += count * std::exp(gain * log_tau);
    while (held - sealed.front().first > lag) {
      held -= sealed.front().first;
      sum -= sealed.front().first * std::exp(gain * sealed.front().second);
      sealed.pop_front();
    }
    double noise = 0;  // exponential of a normal, mean 1
    for (int i = 0; i < tokens; ++i) {
      const double u = Uniform(5, 0, ++draws), v = Uniform(5, 1, draws);
      noise += std::exp(1.5 * std::sqrt(-2 * std::log(1 - u)) * std::cos(6.283185307 * v) - 1.125);
    }
    return level * sum / held * noise / tokens;
  }
};

TEST(QualityLoop, BringsEveryPlantUnderTheTargetAndHoldsIt) {
  for (double gain : {0.7, 1.5, 4.0}) {
    for (double level : {0.001, 0.02}) {
      for (double lag : {500.0, 3000.0}) {
        Driver driver;
        Plant plant{gain, level, lag};
        TokenMean windowed;
        int over = 0, windows = 0;
        double lowest = 1, highest = 0;
        for (int tokens = 0; tokens < 120'000; tokens += 64) {
          const double kl = plant.Frame(driver.tau(), 64);
          driver.Feed(kl, 64);
          if (tokens < 30'000) continue;
          windowed.Add(64, 64 * kl, 4000);
          over += windowed.mean() > 1.25 * 0.005;
          ++windows;
          lowest = std::min(lowest, driver.tau());
          highest = std::max(highest, driver.tau());
        }
        EXPECT_LT(over, windows / 20) << gain << " " << level << " " << lag;
        EXPECT_LT(highest / lowest, 2.5) << gain << " " << level << " " << lag << ": it swings";
        EXPECT_GT(windowed.mean(), 0.5 * 0.005) << gain << " " << level << " " << lag << ": it wastes memory";
      }
    }
  }
}

TEST(QualityLoop, IsBackUnderTheTargetWithin10000TokensOfASwitch) {
  for (double gain : {1.0, 4.0}) {
    Driver driver;
    Plant plant{gain, 0.003, 1500};
    for (int tokens = 0; tokens < 60'000; tokens += 64) driver.Feed(plant.Frame(driver.tau(), 64), 64);
    plant.level *= 3;  // other texts
    int after = 0;
    TokenMean windowed;
    do {
      const double kl = plant.Frame(driver.tau(), 64);
      driver.Feed(kl, 64);
      windowed.Add(64, 64 * kl, 1000);
      after += 64;
    } while ((after < 1000 || windowed.mean() > 0.005) && after < 20'000);
    EXPECT_LT(after, 10'000) << gain;
  }
}

}  // namespace
}  // namespace stria
