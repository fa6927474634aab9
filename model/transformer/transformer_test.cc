// Small random models of each family against plain double loops.
#include "model/transformer/transformer.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/transformer/plain_cache.h"
#include "model/transformer/reference_for_test.h"

namespace stria {
namespace {

// Heads that are wider than hidden / heads, three query heads to a KV head, no size a power of two.
ModelConfig SmallConfig() {
  ModelConfig config;
  config.architecture = "llama";
  config.layers = 3;
  config.hidden = 60;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.ffn = 92;
  config.vocab = 211;
  config.context_length = 300;
  config.rope_dims = 16;
  config.tied_embeddings = true;
  return config;
}

RopeScaling Scaling(RopeScaling::Kind kind, float factor, int original_context) {
  RopeScaling scaling;
  scaling.kind = kind;
  scaling.factor = factor;
  scaling.original_context = original_context;
  return scaling;
}

std::vector<std::pair<std::string, ModelConfig>> Models() {
  std::vector<std::pair<std::string, ModelConfig>> models;
  ModelConfig config = SmallConfig();
  models.emplace_back("llama", config);
  config.rope = Scaling(RopeScaling::Kind::kLlama3, 8, 64);
  models.emplace_back("llama, llama3 scaling, head of its own", config);
  models.back().second.tied_embeddings = false;
  config = SmallConfig();
  config.qkv_bias = true;
  config.rope = Scaling(RopeScaling::Kind::kYarn, 4, 75);
  config.rope.attention_factor = 1.139f;
  models.emplace_back("qwen2, yarn", config);
  config = SmallConfig();
  config.qk_norm = true;
  config.kv_heads = 6;
  config.rope = Scaling(RopeScaling::Kind::kLinear, 2, 0);
  models.emplace_back("qwen3, linear, no groups", config);
  return models;
}

std::vector<int32_t> Tokens(int seed, int n) {
  std::vector<int32_t> tokens(n);
  for (int i = 0; i < n; ++i) tokens[i] = (seed * 101 + i * i * 31 + i * 7) % 211;
  return tokens;
}

// Runs one call of all layers and the head over rows (token, position, sequence); appends the logits.
struct Row {
  int32_t token;
  int32_t position;
  int sequence;
};
std::vector<float> Step(Transformer& transformer, PlainCache& cache, RowRole role,
                        const std::vector<Row>& rows) {
  std::vector<int32_t> tokens, positions;
  std::vector<int> sequences;
  for (const Row& row : rows) {
    tokens.push_back(row.token);
    positions.push_back(row.position);
    sequences.push_back(row.sequence);
  }
  cache.SetRows(sequences);
  std::vector<float> residual(rows.size() * transformer.config().hidden);
  std::vector<float> logits(rows.size() * transformer.config().vocab);
  transformer.Embed(tokens, residual.data());
  for (int layer = 0; layer < transformer.config().layers; ++layer) {
    transformer.Layer(layer, role, positions, residual.data(), cache);
  }
  transformer.Head(role, static_cast<int>(rows.size()), residual.data(), logits.data());
  return logits;
}

// The root mean square of the difference over that of the expected values.
double RelativeError(const float* values, const double* expected, size_t n) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < n; ++i) {
    difference += (values[i] - expected[i]) * (values[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

std::unique_ptr<Transformer> Make(const Checkpoint& checkpoint, TransformerOptions options) {
  auto transformer = Transformer::Create(checkpoint, options);
  EXPECT_TRUE(transformer.ok()) << transformer.status();
  return *std::move(transformer);
}

TEST(Transformer, DecodeRowsMatchDouble) {
  for (const auto& [name, config] : Models()) {
    SCOPED_TRACE(name);
    const RandomCheckpoint checkpoint(config, 1);
    const auto transformer = Make(checkpoint, {.threads = 2, .max_decode_rows = 3, .max_prompt_rows = 1});
    PlainCache cache(config, 2, PlainCache::Storage::kFloat32);
    const std::vector<int32_t> first = Tokens(1, 40), second = Tokens(2, 25);
    const RandomCheckpoint stored = Rounded(checkpoint, Rounding::kInt8);
    const std::vector<double> expected_first = ReferenceLogits(stored, first);
    const std::vector<double> expected_second = ReferenceLogits(stored, second);
    // The second sequence joins late.
    for (int t = 0; t < 40; ++t) {
      std::vector<Row> rows = {{first[t], t, 0}};
      if (t >= 15) rows.insert(rows.begin(), {second[t - 15], t - 15, 1});
      const std::vector<float> logits = Step(*transformer, cache, RowRole::kDecode, rows);
      ASSERT_LT(RelativeError(logits.data() + (rows.size() - 1) * config.vocab,
                              expected_first.data() + t * config.vocab, config.vocab),
                1e-3)
          << t;
      if (t >= 15) {
        ASSERT_LT(
            RelativeError(logits.data(), expected_second.data() + (t - 15) * config.vocab, config.vocab),
            1e-3)
            << t;
      }
    }
  }
}

TEST(Transformer, PromptRowsMatchDoubleInAnyChunks) {
  for (const auto& [name, config] : Models()) {
    SCOPED_TRACE(name);
    const RandomCheckpoint checkpoint(config, 2);
    const auto transformer = Make(checkpoint, {.threads = 2, .max_decode_rows = 1, .max_prompt_rows = 40});
    const std::vector<int32_t> tokens = Tokens(3, 40);
    const bool integers = transformer->arithmetic(RowRole::kPrompt).substr(0, 4) == "int8";
    const std::vector<double> expected =
        ReferenceLogits(Rounded(checkpoint, integers ? Rounding::kInt8 : Rounding::kBf16), tokens);
    for (const int chunk : {1, 7, 40}) {
      PlainCache cache(config, 1, PlainCache::Storage::kFloat32);
      std::vector<float> logits;
      for (int begin = 0; begin < 40; begin += chunk) {
        std::vector<Row> rows;
        for (int t = begin; t < std::min(40, begin + chunk); ++t) rows.push_back({tokens[t], t, 0});
        const std::vector<float> of_chunk = Step(*transformer, cache, RowRole::kPrompt, rows);
        logits.insert(logits.end(), of_chunk.begin(), of_chunk.end());
      }
      // Activations may be rounded at every matrix, to bf16 or to 8 bits in groups.
      ASSERT_LT(RelativeError(logits.data(), expected.data(), logits.size()), integers ? 0.05 : 0.02) << chunk;
    }
  }
}

TEST(Transformer, Bf16DecodeRowsMatchDouble) {
  const ModelConfig config = SmallConfig();
  const RandomCheckpoint checkpoint(config, 3);
  const auto transformer =
      Make(checkpoint, {.weights = TransformerOptions::Weights::kBf16, .threads = 2, .max_decode_rows = 2});
  const std::vector<int32_t> tokens = Tokens(4, 20);
  const std::vector<double> expected = ReferenceLogits(Rounded(checkpoint, Rounding::kBf16), tokens);
  PlainCache cache(config, 1, PlainCache::Storage::kFloat32);
  for (int t = 0; t < 20; ++t) {
    const std::vector<float> logits = Step(*transformer, cache, RowRole::kDecode, {{tokens[t], t, 0}});
    ASSERT_LT(RelativeError(logits.data(), expected.data() + t * config.vocab, config.vocab), 0.02) << t;
  }
}

// A sequence alone, and among 30 others that come and go: the same bits.
TEST(Transformer, IntegerDecodeRowsDoNotDependOnTheirNeighbours) {
  for (const auto& [name, config] : Models()) {
    SCOPED_TRACE(name);
    const RandomCheckpoint checkpoint(config, 4);
    const std::vector<int32_t> tokens = Tokens(5, 20);
    std::vector<std::vector<float>> alone;
    {
      const auto transformer = Make(checkpoint, {.threads = 1, .max_decode_rows = 1, .max_prompt_rows = 1});
      PlainCache cache(config, 1, PlainCache::Storage::kFp16);
      for (int t = 0; t < 20; ++t)
        alone.push_back(Step(*transformer, cache, RowRole::kDecode, {{tokens[t], t, 0}}));
    }
    const auto transformer = Make(checkpoint, {.threads = 2, .max_decode_rows = 31, .max_prompt_rows = 1});
    PlainCache cache(config, 31, PlainCache::Storage::kFp16);
    for (int t = 0; t < 20; ++t) {
      std::vector<Row> rows;
      for (int other = 1; other <= (t * 7) % 31; ++other)
        rows.push_back({(other * 13 + t) % config.vocab, t, other});
      const size_t at = rows.size() / 2;
      rows.insert(rows.begin() + static_cast<ptrdiff_t>(at), {tokens[t], t, 0});
      const std::vector<float> logits = Step(*transformer, cache, RowRole::kDecode, rows);
      ASSERT_TRUE(std::equal(alone[t].begin(), alone[t].end(),
                             logits.begin() + static_cast<ptrdiff_t>(at * config.vocab)))
          << t;
    }
  }
}

TEST(Transformer, EmbedsRowsRoundedToBf16) {
  const ModelConfig config = SmallConfig();
  const RandomCheckpoint checkpoint(config, 5);
  const auto transformer = Make(checkpoint, {.max_prompt_rows = 2});
  std::vector<float> residual(2 * config.hidden);
  const std::vector<int32_t> tokens = {210, 0};
  transformer->Embed(tokens, residual.data());
  RandomCheckpoint stored = Rounded(checkpoint, Rounding::kBf16);
  const std::vector<float>& table = stored.At(WeightRole::kEmbedding, 0).values;
  for (int i = 0; i < config.hidden; ++i) {
    EXPECT_EQ(residual[i], table[static_cast<size_t>(210) * config.hidden + i]);
    EXPECT_EQ(residual[config.hidden + i], table[i]);
  }
}

TEST(Transformer, ReportsProgressMemoryAndTimes) {
  const ModelConfig config = SmallConfig();
  const RandomCheckpoint checkpoint(config, 6);
  std::vector<double> shares;
  auto made = Transformer::Create(checkpoint, {}, [&](double share) { shares.push_back(share); });
  ASSERT_TRUE(made.ok());
  ASSERT_FALSE(shares.empty());
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_NEAR(shares.back(), 1, 1e-9);
  const int64_t per_layer = 60 * (2 * 96 + 2 * 32 + 3 * 92), weights = 3 * per_layer + 211 * 60;
  EXPECT_GT((*made)->weight_bytes(), static_cast<size_t>(weights));  // a byte each, at least
  EXPECT_GT((*made)->scratch_bytes(), 0u);
  PlainCache cache(config, 1, PlainCache::Storage::kFp16);
  Step(**made, cache, RowRole::kDecode, {{1, 0, 0}});
  EXPECT_GT((*made)->times().dense, 0);
  EXPECT_GT((*made)->times().attention, 0);
  EXPECT_GT((*made)->times().other, 0);
}

TEST(Transformer, RefusesShapesThatItCannotRun) {
  const auto refuses = [](auto change, const char* word) {
    ModelConfig config = SmallConfig();
    TransformerOptions options;
    const RandomCheckpoint good(config, 7);
    class Changed final : public Checkpoint {
     public:
      Changed(const Checkpoint& base, ModelConfig config) : base_(base), config_(std::move(config)) {}
      const ModelConfig& config() const override { return config_; }
      void Read(WeightRole role, int layer, int begin, int end, float* out) const override {
        base_.Read(role, layer, begin, end, out);
      }
      const std::string& fingerprint() const override { return base_.fingerprint(); }

     private:
      const Checkpoint& base_;
      ModelConfig config_;
    };
    change(config, options);
    const auto made = Transformer::Create(Changed(good, config), options);
    ASSERT_FALSE(made.ok()) << word;
    EXPECT_NE(made.status().ToString().find(word), std::string::npos) << made.status();
  };
  using Config = ModelConfig;
  using Options = TransformerOptions;
  refuses([](Config& c, Options&) { c.kv_heads = 4; }, "kv_heads");
  refuses([](Config& c, Options&) { c.rope_dims = 17; }, "rope_dims");
  refuses([](Config& c, Options&) { c.rope_dims = 18; }, "rope_dims");
  refuses([](Config& c, Options&) { c.layers = 0; }, "layers");
  refuses([](Config& c, Options&) { c.rope.frequency_divisors = {1, 2}; }, "divisors");
  refuses([](Config&, Options& o) { o.threads = 0; }, "threads");
  refuses([](Config&, Options& o) { o.max_decode_rows = 0; }, "max_decode_rows");
}

}  // namespace
}  // namespace stria
