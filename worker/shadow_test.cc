// Shadows over a tiny transformer: what they measure, that they change nothing, and that they give way.
#include <map>

#include "base/random.h"
#include "gtest/gtest.h"
#include "worker/engine.h"
#include "worker/fake_transformer.h"
#include "worker/quality_tally.h"

namespace stria {
namespace {

constexpr int kVocab = 61;

// Rows of logits as the observer saw them, by sequence and index.
class Recorder final : public LogitsObserver {
 public:
  void OnLogits(const SequenceName& name, uint32_t index, std::span<const float> logits) override {
    rows[{name.id, index}].assign(logits.begin(), logits.end());
  }
  std::map<std::pair<uint64_t, uint32_t>, std::vector<float>> rows;
};

class ShadowTest : public testing::Test {
 protected:
  void Make(EngineOptions options, const FakeTransformer::Shape& shape = {}) {
    engine_.reset();
    transformer_.emplace(shape);
    options.poison = true;
    auto engine = Engine::Create(*transformer_, options, clock_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    tokens_.clear();
    scored_.clear();
  }
  void SetTiers(Width width) {
    TierVector tiers = engine_->tiers();
    ++tiers.epoch;
    for (LayerTier& layer : tiers.layers) layer.keys = layer.values = width;
    ASSERT_TRUE(engine_->ApplyTiers(tiers).ok());
  }
  StartSequence Request(uint64_t id, uint32_t prompt, uint32_t new_tokens) const {
    StartSequence start;
    start.name = {id, 0};
    for (uint32_t i = 0; i < prompt; ++i) start.prompt.push_back(static_cast<int32_t>(Uniform(id, 9, i) * kVocab));
    start.max_new_tokens = new_tokens;
    start.sampling.temperature = 0.8f;
    return start;
  }
  void Start(const StartSequence& start) {
    const absl::Status status = engine_->Start(start);
    ASSERT_TRUE(status.ok()) << status;
  }
  void Turn() {
    const TurnResult result = engine_->Turn();
    for (const SequenceOutput& output : result.outputs) {
      for (const TokenOut& token : output.tokens) tokens_[output.name.id].push_back(token.token);
      if (output.finish != FinishReason::kNone) finish_[output.name.id] = output.finish;
    }
    if (!result.quality) return;
    EXPECT_EQ(result.quality->epoch, engine_->tiers().epoch);
    for (const QualityReading& reading : result.quality->readings) {
      scored_[reading.length].tokens += reading.tokens;
      scored_[reading.length].kl += reading.kl;
    }
  }
  void RunAll() {
    while (engine_->HasWork()) Turn();
    EXPECT_EQ(engine_->stats().used_bytes, 0u);
    EXPECT_EQ(engine_->stats().shadows.bytes, 0u);
    EXPECT_EQ(engine_->stats().shadows.sequences, 0u);
  }

  FakeClock clock_;  // stands still: which step comes when depends on nothing else
  std::optional<FakeTransformer> transformer_;
  std::unique_ptr<Engine> engine_;
  std::map<uint64_t, std::vector<int32_t>> tokens_;
  std::map<uint64_t, FinishReason> finish_;
  std::map<uint32_t, QualityReading> scored_;
};

// The shadow's logits are those of an engine whose pages are all FP16, fed the same text.
TEST_F(ShadowTest, MeasuresTheKlAgainstAnFp16Cache) {
  StartSequence start = Request(1, 400, 150);
  for (uint32_t i = 0; i < 150; ++i) start.forced.push_back(static_cast<int32_t>(Uniform(5, 9, i) * kVocab));
  Recorder exact, tiered;
  Make({.observer = &exact});
  Start(start);
  RunAll();
  Make({.shadows = {.share = 1}, .observer = &tiered});
  SetTiers(Width::kInt2);
  Start(start);
  RunAll();
  double expected = 0;
  uint64_t counted = 0;
  for (uint32_t index = 1; index < 150; ++index) {  // the first comes from the prompt, not from pages
    const uint32_t length = 400 + index, sealed = (length - 1) / 64;
    if ((sealed - 1) * 64.0 / length < 0.75) continue;
    const std::vector<float>&p = exact.rows.at({1, index}), &q = tiered.rows.at({1, index});
    double p_sum = 0, q_sum = 0, kl = 0;
    for (int i = 0; i < kVocab; ++i) p_sum += std::exp(double{p[i]}), q_sum += std::exp(double{q[i]});
    for (int i = 0; i < kVocab; ++i) kl += std::exp(p[i]) / p_sum * (p[i] - std::log(p_sum) - q[i] + std::log(q_sum));
    expected += kl;
    ++counted;
  }
  ASSERT_GT(counted, 60u);
  ASSERT_LT(counted, 149u);  // some positions see too many exact tokens
  const ShadowStats stats = engine_->stats().shadows;
  EXPECT_EQ(stats.scored, counted);
  EXPECT_EQ(stats.rows, 149u);
  EXPECT_GT(expected / counted, 1e-3);
  EXPECT_NEAR(stats.kl, expected, 1e-5 * expected);
  QualityReading sum;
  for (const auto& [length, reading] : scored_) sum.tokens += reading.tokens, sum.kl += reading.kl;
  EXPECT_EQ(sum.tokens, counted);
  EXPECT_NEAR(sum.kl, stats.kl, 1e-9);
  ASSERT_EQ(scored_.size(), 2u);
  EXPECT_EQ(scored_.begin()->first, 256u);
  EXPECT_EQ(scored_.rbegin()->first, 512u);
}

TEST_F(ShadowTest, ChangesNoText) {
  std::map<uint64_t, std::vector<int32_t>> without;
  for (double share : {0.0, 1.0, 0.5}) {
    Make({.shadows = {.share = share, .sequences = 3}});
    SetTiers(Width::kInt4);
    for (uint64_t id = 1; id <= 6; ++id) Start(Request(id, 150 + 40 * static_cast<uint32_t>(id), 120));
    for (int i = 0; i < 50; ++i) Turn();
    SetTiers(Width::kInt2);
    RunAll();
    if (share == 0) {
      without = tokens_;
      EXPECT_EQ(engine_->stats().shadows.begun, 0u);
      continue;
    }
    EXPECT_EQ(tokens_, without);
    EXPECT_GT(engine_->stats().shadows.scored, 0u);
    EXPECT_LE(engine_->stats().shadows.begun, 3u);
    EXPECT_EQ(engine_->stats().shadows.dropped, 0u);
  }
}

TEST_F(ShadowTest, Fp16TiersAndFixedModesSayNothing) {
  Make({.shadows = {.share = 1}});
  Start(Request(1, 500, 80));  // no tiers yet: FP16
  StartSequence fixed = Request(2, 500, 80);
  fixed.plan.follow_tiers = false;
  fixed.plan.layers.resize(3);
  for (LayerAction& layer : fixed.plan.layers) layer.keys = layer.values = Width::kInt4;
  Start(fixed);
  RunAll();
  EXPECT_EQ(engine_->stats().shadows.begun, 1u);
  EXPECT_EQ(engine_->stats().shadows.scored, 0u);
  EXPECT_TRUE(scored_.empty());
}

TEST_F(ShadowTest, TheShareIsDrawnBySeedAndArrival) {
  std::vector<uint64_t> begun;
  for (uint64_t seed : {1, 1, 2}) {
    Make({.canary_seed = seed, .shadows = {.share = 0.25}});
    uint64_t drawn = 0;
    for (uint64_t id = 1; id <= 200; ++id) {
      Start(Request(id, 20, 2));
      RunAll();
      drawn = drawn * 31 + engine_->stats().shadows.begun;
    }
    EXPECT_NEAR(static_cast<double>(engine_->stats().shadows.begun), 50, 20);
    begun.push_back(drawn);
  }
  EXPECT_EQ(begun[0], begun[1]);
  EXPECT_NE(begun[0], begun[2]);
}

// Large pages, so that few tokens fill a pool.
constexpr FakeTransformer::Shape kLargePages = {.layers = 2, .heads = 8, .kv_heads = 8, .head_dim = 64};

TEST_F(ShadowTest, GivesWayToWhoeverWantsTheMemory) {
  Make({.pool_bytes = 16 << 20, .shadows = {.share = 1, .bytes = 16 << 20}}, kLargePages);
  SetTiers(Width::kInt2);
  Start(Request(1, 1000, 60));
  while (tokens_[1].empty()) Turn();
  EXPECT_EQ(engine_->stats().shadows.sequences, 1u);
  const uint64_t shadow = engine_->stats().shadows.bytes;
  EXPECT_GT(shadow, 2 * engine_->stats().used_bytes);
  EXPECT_LT(engine_->stats().used_bytes + shadow, engine_->stats().pool_bytes);
  // Fits beside the first alone, not beside its shadow.
  StartSequence exact = Request(2, 1500, 10);
  exact.plan.follow_tiers = false;
  exact.plan.layers.resize(2);
  for (LayerAction& layer : exact.plan.layers) layer.keys = layer.values = Width::kInt8;
  Start(exact);
  Turn();
  EXPECT_EQ(engine_->stats().shadows.sequences, 0u);
  EXPECT_EQ(engine_->stats().shadows.dropped, 1u);
  RunAll();
  EXPECT_EQ(finish_[1], FinishReason::kLength);
  EXPECT_EQ(finish_[2], FinishReason::kLength);
  EXPECT_EQ(tokens_[1].size(), 60u);
  EXPECT_EQ(engine_->stats().preemptions, 0u);
}

TEST_F(ShadowTest, StaysWithinItsBytes) {
  const uint64_t limit = 2 << 20;
  Make({.shadows = {.share = 1, .bytes = limit}}, kLargePages);
  SetTiers(Width::kInt4);
  Start(Request(1, 300, 300));  // grows beyond it
  uint64_t most = 0;
  while (engine_->HasWork()) {
    Turn();
    most = std::max(most, engine_->stats().shadows.bytes);
  }
  EXPECT_LE(most, limit);
  EXPECT_GT(most, limit / 2);
  EXPECT_EQ(engine_->stats().shadows.dropped, 1u);
  EXPECT_EQ(tokens_[1].size(), 300u);
  Make({.shadows = {.share = 1, .bytes = 1 << 20}}, kLargePages);
  SetTiers(Width::kInt4);
  Start(Request(1, 300, 10));  // never fits
  RunAll();
  EXPECT_EQ(engine_->stats().shadows.begun, 0u);
}

TEST_F(ShadowTest, CancelAtRandomPointsReturnsEveryPage) {
  Make({.pool_bytes = 16 << 20, .shadows = {.share = 0.7}});
  SetTiers(Width::kInt4);
  uint64_t id = 0;
  for (int turn = 0; turn < 600; ++turn) {
    if (turn % 5 == 0) Start(Request(++id, 30 + static_cast<uint32_t>(Uniform(3, 1, turn) * 600), 1 + turn % 90));
    if (turn % 7 == 3) engine_->Cancel({1 + static_cast<uint64_t>(Uniform(3, 2, turn) * static_cast<double>(id)), 0});
    Turn();
    const EngineStats stats = engine_->stats();
    ASSERT_LE(stats.used_bytes + stats.shadows.bytes, stats.pool_bytes);
  }
  RunAll();
  EXPECT_GT(engine_->stats().shadows.begun, 10u);
}

// A shadowed request computes its whole prompt, and leaves its pages to others all the same.
TEST_F(ShadowTest, TakesNoSharedPages) {
  Make({.prefix_cache_bytes = 64 << 20, .shadows = {.share = 1, .sequences = 1}});
  SetTiers(Width::kInt4);
  Start(Request(1, 400, 3));
  RunAll();
  StartSequence again = Request(1, 400, 3);
  again.name.id = 2;
  Start(again);
  RunAll();
  EXPECT_EQ(engine_->stats().shadows.begun, 2u);
  EXPECT_EQ(engine_->stats().prefix.hits, 0u);
  EXPECT_EQ(tokens_[1], tokens_[2]);
  Start(Request(9, 300, 200));  // has the only shadow, so that the next one has none
  Turn();
  again.name.id = 3;
  Start(again);
  RunAll();
  EXPECT_EQ(engine_->stats().shadows.begun, 3u);
  EXPECT_EQ(engine_->stats().prefix.hits, 1u);
}

TEST(QualityTally, SumsByLength) {
  QualityTally tally;
  tally.Add(1023, 0.5);
  tally.Add(1024, 0.25);
  tally.Add(512, 1);
  tally.Add(2047, 0.25);
  EXPECT_EQ(tally.tokens(), 4u);
  const std::vector<QualityReading> taken = tally.Take();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].length, 512u);
  EXPECT_EQ(taken[0].tokens, 2u);
  EXPECT_EQ(taken[0].kl, 1.5);
  EXPECT_EQ(taken[1].length, 1024u);
  EXPECT_EQ(taken[1].kl, 0.5);
  EXPECT_EQ(tally.tokens(), 0u);
  EXPECT_TRUE(tally.Take().empty());
}

}  // namespace
}  // namespace stria
