// What docs/stability.md shows, on fewer seeds.
#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "eval/stability/figures.h"
#include "gtest/gtest.h"
#include "services/controller/calibration_json.h"

namespace stria {
namespace {

class RecordedFirings : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto recording = ReadRecording("eval/data/canary_smollm2.csv");
    ASSERT_TRUE(recording.ok()) << recording.status();
    recording_ = *std::move(recording);
    auto calibration = ReadCalibration("eval/data/smollm2_calibration.json");
    ASSERT_TRUE(calibration.ok()) << calibration.status();
    calibration_ = *std::move(calibration);
  }
  static stria::Setup SetupOf(int seeds, size_t firings) {
    return {recording_, &calibration_, {"gsm8k", "tau_airline", "retrieval"}, seeds, firings};
  }
  static inline std::vector<RecordedFiring> recording_;
  static inline Calibration calibration_;
};

class Stability : public RecordedFirings, public testing::WithParamInterface<double> {};

TEST_P(Stability, TheDefaultRuleMissesNoAimOnTextsThatItWasNotChosenOn) {
  const std::vector<RecordedFiring> recording = EverySecondText(recording_, 1);
  const stria::Setup setup{recording, &calibration_, {"gsm8k", "tau_airline", "retrieval"}, 8, 600};
  const Comparison comparison = Compare(setup, BandedRule(), GetParam());
  EXPECT_EQ(Misses(comparison), std::vector<std::string>{});
  EXPECT_GT(comparison.seed_flips, 0) << "nothing to compare with";
}

TEST(Misses, SaysEveryAimThatIsMissed) {
  Comparison comparison{.seed_flips = 100, .flips = 4, .seed_spread = 0.1, .spread = 0.06, .longest_above = 4, .seed_switches = {}, .switches = {}};
  comparison.seed_switches.most_firings = 30;
  comparison.switches = {.most_firings = 61, .flips_per_layer = 1.6};
  EXPECT_EQ(Misses(comparison).size(), 5u);
  comparison = {.seed_flips = 100, .flips = 3, .seed_spread = 0.1, .spread = 0.05, .longest_above = 3, .seed_switches = {}, .switches = {}};
  comparison.switches = {.most_firings = 40, .flips_per_layer = 1.5};
  EXPECT_EQ(Misses(comparison), std::vector<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(Taus, Stability, testing::Values(0.011, 0.022, 0.044));

// A workload three times as hard, then back: synthetic, so the answer is known. Every layer reads the same, ±35 % a firing.
TEST(Synthetic, FollowsALevelThatMoves) {
  std::vector<RecordedFiring> recording;
  const auto add = [&](const std::string& workload, double kl4) {
    for (uint32_t n = 0; n < 64; ++n) {
      RecordedFiring firing{.workload = workload, .text = n / 8, .tokens = 4096, .layers = {}};
      for (uint32_t l = 0; l < 10; ++l) {
        const double noise = std::exp(0.35 * 3.46 * (Uniform(l, 0, recording.size()) - 0.5));
        firing.layers.push_back({static_cast<float>(25 * kl4 * noise), static_cast<float>(kl4 * noise), static_cast<float>(kl4 / 290 * noise)});
      }
      recording.push_back(std::move(firing));
    }
  };
  add("easy", 0.012);
  add("hard", 0.036);
  Calibration calibration{.model = "m", .layers = std::vector<LayerCalibration>(10, {.keys = {}, .values = {}, .canary = {0.3, 0.012, 0.00004}})};
  Stream stream = MakeStream(recording, "easy", 300, 1);
  for (const char* next : {"hard", "easy"}) {
    const Stream more = MakeStream(recording, next, 300, 2);
    stream.insert(stream.end(), more.begin(), more.end());
  }
  const Trace trace = Simulate(BandedRule(), &calibration, stream, {});
  EXPECT_EQ(trace.bits[299], 4);
  EXPECT_EQ(trace.bits[340], 8);
  EXPECT_EQ(trace.bits[599], 8);
  EXPECT_EQ(trace.bits[899], 4);
  uint32_t flips = 0;
  for (const uint32_t count : trace.flips) flips += count;
  EXPECT_EQ(flips, 20u) << "each layer up once and down once";
}

TEST(Synthetic, RoundingNearTauFlipsTheSeedsRuleAndNotOurs) {
  EXPECT_GT(MeasureFlipsAtTau(SeedRule(), 0.022, 1000, 1), 10);
  EXPECT_EQ(MeasureFlipsAtTau(BandedRule(), 0.022, 1000, 1), 0);
}

TEST_F(RecordedFirings, AQuantisedReferenceApprovesOfItself) {
  const stria::Setup setup = SetupOf(4, 400);
  double ring = 0, cache = 0;
  for (const std::string& workload : setup.workloads) {
    ring += MeasureStationary(setup, SeedRule(), workload, 0.022).above_share;
    cache += MeasureStationary(setup, SeedRule(), workload, 0.022, Reference::kCache).above_share;
  }
  EXPECT_GT(cache, 10 * ring);
}

}  // namespace
}  // namespace stria
