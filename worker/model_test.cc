// The engine over a real model: what must hold bit for bit, with its rounding, its page sizes and its dense
// layers.
#include <cmath>
#include <cstdlib>
#include <map>

#include "base/random.h"
#include "gtest/gtest.h"
#include "model/gguf/gguf_checkpoint.h"
#include "worker/engine.h"
#include "worker/sampler.h"
#include "worker/teacher_forcing.h"

namespace stria {
namespace {

constexpr int kRows = 16;

// Loaded once for all tests of this file.
Transformer* Model() {
  static const std::unique_ptr<Transformer> model = []() -> std::unique_ptr<Transformer> {
    const char* path = std::getenv("STRIA_MODEL");
    if (path == nullptr) return nullptr;
    auto checkpoint = GgufCheckpoint::Open(path);
    if (!checkpoint.ok()) return nullptr;
    auto transformer =
        Transformer::Create(**checkpoint, {.threads = 1, .max_decode_rows = kRows, .max_prompt_rows = 256});
    return transformer.ok() ? *std::move(transformer) : nullptr;
  }();
  return model.get();
}

class ModelTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(Model(), nullptr) << "STRIA_MODEL must name a readable SmolLM2-135M-Instruct.Q4_1.gguf";
    layers_ = Model()->config().layers;
  }
  void Make(EngineOptions options = {}, uint64_t pool_bytes = 256 << 20) {
    options.pool_bytes = pool_bytes;
    options.max_sequences = kRows - (options.shadows.share > 0 ? options.shadows.sequences : 0);
    options.poison = true;
    auto engine = Engine::Create(*Model(), options, SystemClock());
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    tokens_.clear();
  }
  StartSequence Request(uint64_t id, int prompt, int new_tokens, Width keys, Width values) const {
    StartSequence start;
    start.name.id = id;
    for (int i = 0; i < prompt; ++i)
      start.prompt.push_back(static_cast<int32_t>(1000 + Uniform(4, id, i) * 30000));
    start.max_new_tokens = new_tokens;
    start.sampling.temperature = 0;
    start.plan = UniformPlan(layers_, keys, values);
    return start;
  }
  void Start(const StartSequence& start) {
    const absl::Status status = engine_->Start(start);
    ASSERT_TRUE(status.ok()) << status;
  }
  TurnResult Turn() {
    TurnResult result = engine_->Turn();
    for (const SequenceOutput& output : result.outputs)
      for (const TokenOut& token : output.tokens) tokens_[output.name.id].push_back(token);
    return result;
  }

  int layers_ = 0;
  std::unique_ptr<Engine> engine_;
  std::map<uint64_t, std::vector<TokenOut>> tokens_;
};

TEST_F(ModelTest, AloneAndAmongOthersGiveTheSameTokens) {
  for (Width width : kAllWidths) {
    StartSequence one = Request(1, 120, 20, width, width);
    one.sampling.temperature = 1;
    Make();
    Start(one);
    while (engine_->HasWork()) Turn();
    std::vector<int32_t> alone, among;
    for (const TokenOut& token : tokens_[1]) alone.push_back(token.token);
    ASSERT_EQ(alone.size(), 20u);
    Make();
    for (uint64_t id = 2; id <= 5; ++id)
      Start(Request(id, 20 * static_cast<int>(id), 30, kAllWidths[id % 4], width));
    Turn();
    Start(one);
    for (uint64_t id = 6; id <= 8; ++id)
      Start(Request(id, 130 - 10 * static_cast<int>(id), 25, width, kAllWidths[id % 4]));
    while (tokens_[1].size() < 20) Turn();
    for (const TokenOut& token : tokens_[1]) among.push_back(token.token);
    EXPECT_EQ(among, alone) << Name(width);
  }
}

// Sealed bytes may differ in rounding where the dense layers sum in another order for other row counts; the
// text must not.
TEST_F(ModelTest, ChunksChangeNothingThatCounts) {
  struct Row : LogitsObserver {
    void OnLogits(const SequenceName&, uint32_t, std::span<const float> logits) override {
      row.assign(logits.begin(), logits.end());
    }
    std::vector<float> row;
  };
  std::vector<float> first;
  std::vector<SequenceInfo> first_pages;
  for (uint32_t chunk : {256u, 64u, 7u, 1u}) {
    Row observer;
    Make({.prefill_chunk = chunk, .observer = &observer});
    Start(Request(1, 140, 2, Width::kInt8, Width::kInt8));
    while (tokens_[1].empty()) Turn();
    const std::vector<SequenceInfo> pages = engine_->Describe();
    ASSERT_EQ(pages.size(), 1u);
    if (first.empty()) first = observer.row, first_pages = pages;
    int equal = 0, all = 0;
    for (int layer = 0; layer < layers_; ++layer)
      for (int page = 0; page < 2; ++page) {
        all += 2;
        equal +=
            pages[0].layers[layer].key_pages[page].hash == first_pages[0].layers[layer].key_pages[page].hash;
        equal += pages[0].layers[layer].value_pages[page].hash ==
                 first_pages[0].layers[layer].value_pages[page].hash;
      }
    double kl = 0;
    const double p_sum = LogSumExp(first), q_sum = LogSumExp(observer.row);
    for (size_t i = 0; i < first.size(); ++i)
      kl += std::exp(first[i] - p_sum) * ((first[i] - p_sum) - (observer.row[i] - q_sum));
    std::printf("chunks of %u: %d of %d pages equal in every byte, KL of the next token %.2g\n", chunk, equal,
                all, kl);
    // Chunks of less than a page take the mean of fewer keys off before these are rounded to bfloat16: other last
    // bits, so no more than the arithmetic's own noise is promised (docs/decisions.md).
    EXPECT_LT(kl, chunk % 64 == 0 ? 1e-3 : 7e-3);
  }
}

TEST_F(ModelTest, CanaryOfLayerZeroSeesNoTier) {
  std::vector<CanaryFrame> frames[2];
  for (int i = 0; i < 2; ++i) {
    Make();
    TierVector tiers = engine_->tiers();
    tiers.canary_rate = 0.2;
    for (LayerTier& tier : tiers.layers)
      if (i == 1) tier = {.keys = Width::kInt2, .values = Width::kInt2};
    ASSERT_TRUE(engine_->ApplyTiers(tiers).ok());
    StartSequence start = Request(1, 20, 0, Width::kFp16, Width::kFp16);
    start.forced = Request(2, 200, 0, Width::kFp16, Width::kFp16).prompt;
    start.plan = CachePlan();
    Start(start);
    while (engine_->HasWork()) {
      TurnResult result = Turn();
      if (result.canary) frames[i].push_back(*std::move(result.canary));
    }
  }
  ASSERT_EQ(frames[0].size(), frames[1].size());
  ASSERT_GT(frames[0].size(), 20u);
  bool deeper_differs = false;
  for (size_t f = 0; f < frames[0].size(); ++f) {
    ASSERT_EQ(frames[0][f].readings.size(), static_cast<size_t>(layers_));
    EXPECT_EQ(frames[0][f].readings[0].kl, frames[1][f].readings[0].kl);
    deeper_differs |= frames[0][f].readings[layers_ - 1].kl != frames[1][f].readings[layers_ - 1].kl;
    for (const LayerReading& reading : frames[0][f].readings) {
      EXPECT_GT(reading.kl[0], reading.kl[1]);
      EXPECT_GT(reading.kl[1], reading.kl[2]);
      EXPECT_GE(reading.kl[2], 0);
    }
  }
  EXPECT_TRUE(deeper_differs);
}

// Whether `got` says what `expected` says, up to a token where expected's two best lie closer than `near`.
void ExpectSameText(const std::vector<TokenOut>& expected, const std::vector<TokenOut>& got, float near,
                    const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].token == expected[i].token) continue;
    const float margin = expected[i].top[0].logprob - expected[i].top[1].logprob;
    std::printf("%s: differs first at token %zu, a margin of %.3g\n", what.c_str(), i, margin);
    EXPECT_LT(margin, near) << what;
    return;
  }
}

// Greedy text with FP16 pages is the same whether prefixes are shared or not, also when the pool is so full
// that each prompt evicts what another left.
TEST_F(ModelTest, SharedPrefixesChangeNoGreedyText) {
  constexpr uint64_t kPrompts = 6, kRounds = 3;
  std::vector<StartSequence> requests;
  for (uint64_t i = 0; i < kPrompts; ++i) {
    StartSequence start = Request(1 + i / 3, 140, 12, Width::kFp16, Width::kFp16);  // two beginnings
    const std::vector<int32_t> rest = Request(10 + i, 60, 1, Width::kFp16, Width::kFp16).prompt;
    start.prompt.insert(start.prompt.end(), rest.begin(), rest.end());
    start.sampling.top_logprobs = 2;
    requests.push_back(start);
  }
  Make();
  for (uint64_t i = 0; i < kPrompts; ++i) {
    requests[i].name.id = i;
    Start(requests[i]);
    while (engine_->HasWork()) Turn();
  }
  const std::map<uint64_t, std::vector<TokenOut>> expected = tokens_;
  // A page row takes 1.4 MiB; all prompts leave 10 of them, and about 8 fit beside the rings and staging of three at once.
  for (uint64_t pool_bytes : {uint64_t{256} << 20, uint64_t{18} << 20}) {
    Make({.prefix_cache_bytes = pool_bytes}, pool_bytes);
    for (uint64_t i = 0; i < kRounds * kPrompts; ++i) {
      StartSequence start = requests[(i * 5 + i / 4) % kPrompts];
      start.name.id = 100 * i + start.name.id;
      Start(start);
      if (i % 3 == 2)
        while (engine_->HasWork()) Turn();
    }
    for (const auto& [id, tokens] : tokens_)
      ExpectSameText(expected.at(id % 100), tokens, 0.02f, "prompt " + std::to_string(id % 100));
    const EngineStats stats = engine_->stats();
    std::printf("pool of %lu MiB: %lu of %lu prompts shared %lu tokens, %lu evictions\n", pool_bytes >> 20,
                stats.prefix.hits, stats.prefix.lookups, stats.prefix.hit_tokens, stats.prefix.evictions);
    EXPECT_EQ(tokens_.size(), kRounds * kPrompts);
    EXPECT_EQ(stats.used_bytes, 0u);
    EXPECT_GT(stats.prefix.hit_tokens, 1000u);
    EXPECT_EQ(stats.prefix.evictions > 0, pool_bytes < uint64_t{256} << 20);
  }
}

// The next turn of a chat reads pages that decode rows computed, in their own arithmetic.
TEST_F(ModelTest, TheNextTurnContinuesAsIfComputed) {
  StartSequence first = Request(1, 150, 60, Width::kFp16, Width::kFp16), second = first;
  second.name.id = 2;
  second.max_new_tokens = 12;
  second.sampling.top_logprobs = 2;
  std::vector<TokenOut> alone;
  for (uint64_t bytes : {uint64_t{0}, uint64_t{256} << 20}) {
    Make({.prefix_cache_bytes = bytes});
    Start(first);
    while (engine_->HasWork()) Turn();
    second.prompt = first.prompt;
    for (const TokenOut& token : tokens_[1]) second.prompt.push_back(token.token);
    for (int32_t token : Request(3, 20, 1, Width::kFp16, Width::kFp16).prompt) second.prompt.push_back(token);
    Start(second);
    while (engine_->HasWork()) Turn();
    EXPECT_EQ(engine_->stats().prefix.hit_tokens, bytes > 0 ? 192u : 0u);
    if (bytes == 0) alone = tokens_[2];
  }
  ExpectSameText(alone, tokens_[2], 0.3f, "second turn");
}

// Of random words at INT4: small, not nothing; and the text is the same with and without.
TEST_F(ModelTest, ShadowsMeasureTheTiersAndChangeNoText) {
  std::vector<int32_t> without;
  for (double share : {0.0, 1.0}) {
    Make({.shadows = {.share = share}});
    TierVector tiers = engine_->tiers();
    tiers.epoch = 1;
    for (LayerTier& layer : tiers.layers) layer.keys = layer.values = Width::kInt4;
    ASSERT_TRUE(engine_->ApplyTiers(tiers).ok());
    StartSequence start = Request(1, 400, 40, Width::kInt4, Width::kInt4);
    start.plan = CachePlan();
    start.sampling.temperature = 1;
    Start(start);
    while (engine_->HasWork()) Turn();
    std::vector<int32_t> tokens;
    for (const TokenOut& token : tokens_[1]) tokens.push_back(token.token);
    if (share == 0) {
      without = tokens;
      continue;
    }
    EXPECT_EQ(tokens, without);
    const ShadowStats stats = engine_->stats().shadows;
    EXPECT_EQ(stats.rows, tokens.size() - 1);
    EXPECT_EQ(stats.scored, 26u);  // five pages of INT4 are ¾ of what 426 tokens are, and less of any more before the sixth is full
    const double mean = stats.kl / static_cast<double>(stats.scored);
    EXPECT_GT(mean, 1e-5);
    EXPECT_LT(mean, 0.1);
  }
}

}  // namespace
}  // namespace stria
