// Eviction and inheritance in the engine against a plain implementation, over a tiny transformer. Its oracle keeps a list of
// (position, key, value) per layer and KV head, throws entries out of it, and attends by loops in double.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/float16.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "worker/engine.h"
#include "worker/fake_transformer.h"

namespace stria {
namespace {

using Rows = std::vector<std::vector<float>>;

class Oracle final : public LayerCache {
 public:
  Oracle(FakeTransformer& transformer, const CachePlan& plan, int prompt)
      : transformer_(transformer),
        plan_(plan),
        prompt_(prompt),
        entries_(transformer.config().layers, std::vector<std::vector<Entry>>(transformer.config().kv_heads)) {}

  // Logits after the prompt, and after each of `forced` but the last.
  Rows Logits(const std::vector<int32_t>& prompt, const std::vector<int32_t>& forced) {
    const ModelConfig& model = transformer_.config();
    Rows logits;
    for (size_t step = 0; step < forced.size(); ++step) {
      const std::vector<int32_t> tokens = step == 0 ? prompt : std::vector<int32_t>{forced[step - 1]};
      std::vector<int32_t> positions;
      for (size_t i = 0; i < tokens.size(); ++i)
        positions.push_back(static_cast<int32_t>(step == 0 ? i : prompt.size() + step - 1));
      std::vector<float> residual(tokens.size() * model.hidden);
      transformer_.Embed(tokens, residual.data());
      position_ = positions[0];
      for (int layer = 0; layer < model.layers; ++layer)
        transformer_.Layer(layer, RowRole::kDecode, positions, residual.data(), *this);
      logits.emplace_back(model.vocab);
      transformer_.Head(RowRole::kDecode, 1, residual.data() + (tokens.size() - 1) * model.hidden,
                        logits.back().data());
    }
    return logits;
  }

  void AppendAndAttend(int layer, const AttentionRows& rows) override {
    const ModelConfig& model = transformer_.config();
    const int dim = model.head_dim, group = model.heads / model.kv_heads;
    int anchor = layer;
    while (plan_.layers[anchor].kind == LayerAction::Kind::kInherit) --anchor;
    if (anchor == layer && position_ == 0) votes_.assign(model.kv_heads, std::vector<double>(prompt_));
    for (int row = 0; row < rows.rows; ++row) {
      for (int head = 0; head < model.kv_heads && anchor == layer; ++head) {
        Entry entry{.position = position_ + row, .key = {}, .value = {}};
        for (int c = 0; c < dim; ++c) {
          entry.key.push_back(ToFloat(ToHalf(rows.k[(row * model.kv_heads + head) * dim + c])));
          entry.value.push_back(ToFloat(ToHalf(rows.v[(row * model.kv_heads + head) * dim + c])));
        }
        entries_[layer][head].push_back(std::move(entry));
      }
      for (int head = 0; head < model.heads; ++head) {
        const size_t at = (size_t(row) * model.heads + head) * dim;
        Attend(entries_[anchor][head / group], position_ + row, rows.q + at, rows.out + at, votes_[head / group]);
      }
    }
    const bool last = layer + 1 == model.layers || plan_.layers[layer + 1].kind != LayerAction::Kind::kInherit;
    if (position_ == 0 && last && plan_.keep_tokens > 0)
      for (int head = 0; head < model.kv_heads; ++head) Evict(entries_[anchor][head], votes_[head]);
  }

  size_t entries(int layer) const { return entries_[layer][0].size(); }

 private:
  struct Entry {
    int position;
    std::vector<float> key, value;
  };

  void Attend(const std::vector<Entry>& entries, int position, const float* q, float* out,
              std::vector<double>& votes) const {
    const size_t dim = transformer_.config().head_dim;
    std::vector<double> p;
    double sum = 0;
    for (const Entry& entry : entries) {
      double dot = 0;
      for (size_t c = 0; c < dim; ++c) dot += double(q[c]) * entry.key[c];
      p.push_back(entry.position <= position ? std::exp(dot / std::sqrt(double(dim))) : 0);
      sum += p.back();
    }
    std::vector<double> x(dim);
    for (size_t i = 0; i < entries.size(); ++i) {
      for (size_t c = 0; c < dim; ++c) x[c] += p[i] / sum * entries[i].value[c];
      if (position < prompt_ && position >= prompt_ - 32) votes[entries[i].position] += p[i] / sum;
    }
    for (size_t c = 0; c < dim; ++c) out[c] = static_cast<float>(x[c]);
  }

  void Evict(std::vector<Entry>& entries, const std::vector<double>& votes) const {
    const int keep = std::max(64, static_cast<int>(plan_.keep_tokens));
    const int evicted = (prompt_ - keep) / 64 * 64;
    if (prompt_ <= keep || evicted == 0) return;
    std::vector<std::pair<double, int>> ranked;  // less the pooled vote, position
    for (int t = 0; t < prompt_ - 64; ++t) {
      double best = 0;
      for (int near = std::max(0, t - 3); near <= std::min(t + 3, prompt_ - 33); ++near)
        best = std::max(best, votes[near]);
      ranked.emplace_back(-best, t);
    }
    std::sort(ranked.begin(), ranked.end());
    for (int i = prompt_ - 64 - evicted; i < prompt_ - 64; ++i)
      std::erase_if(entries, [&](const Entry& entry) { return entry.position == ranked[i].second; });
  }

  FakeTransformer& transformer_;
  const CachePlan plan_;
  const int prompt_;
  int position_ = 0;  // of the first row
  std::vector<std::vector<std::vector<Entry>>> entries_;  // [layer][kv head]
  std::vector<std::vector<double>> votes_;                // [kv head][position]
};

struct Recorder : LogitsObserver {
  void OnLogits(const SequenceName& name, uint32_t, std::span<const float> logits) override {
    rows[name.id].emplace_back(logits.begin(), logits.end());
  }
  std::map<uint64_t, Rows> rows;
};

// "p" plain, "i" inherits.
CachePlan Plan(const std::string& layers, uint32_t keep, Width keys = Width::kFp16, Width values = Width::kFp16) {
  CachePlan plan{.follow_tiers = false, .layers = {}, .keep_tokens = keep};
  for (const char kind : layers) {
    LayerAction& action = plan.layers.emplace_back();
    action.keys = keys;
    action.values = values;
    if (kind == 'i') action = {.kind = LayerAction::Kind::kInherit};
  }
  return plan;
}

std::vector<int32_t> Tokens(uint32_t count, uint64_t seed) {
  std::vector<int32_t> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(Uniform(seed, 9, i) * 61);
  return tokens;
}

StartSequence Request(uint64_t id, uint32_t prompt, uint32_t forced, const CachePlan& plan) {
  StartSequence start;
  start.name = {id, 0};
  start.prompt = Tokens(prompt, id);
  start.forced = Tokens(forced, 100 + id);
  start.plan = plan;
  return start;
}

class EvictionTest : public testing::Test {
 protected:
  void Make(const FakeTransformer::Shape& shape = {}, uint32_t chunk = 64) {
    engine_.reset();
    transformer_ = std::make_unique<FakeTransformer>(shape);
    recorder_.rows.clear();
    ends_.clear();
    frames_.clear();
    EngineOptions options{.pool_bytes = 64 << 20, .prefill_chunk = chunk, .target = AvailableTargets().front()};
    options.observer = &recorder_;
    options.poison = true;
    auto engine = Engine::Create(*transformer_, options, SystemClock());
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }
  void Start(const StartSequence& start) {
    const absl::Status status = engine_->Start(start);
    ASSERT_TRUE(status.ok()) << status;
  }
  void Turn() {
    TurnResult result = engine_->Turn();
    for (SequenceOutput& output : result.outputs)
      if (output.finish != FinishReason::kNone) ends_[output.name.id] = output;
    if (result.canary) frames_.push_back(*std::move(result.canary));
  }
  void RunAll() {
    while (engine_->HasWork()) Turn();
    EXPECT_EQ(engine_->stats().used_bytes, 0u);
    for (const uint64_t pages : engine_->stats().pages_used) EXPECT_EQ(pages, 0u);
  }
  void ExpectNear(const Rows& got, const Rows& expected, double tolerance, const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (size_t row = 0; row < got.size(); ++row)
      for (size_t i = 0; i < got[row].size(); ++i)
        ASSERT_NEAR(got[row][i], expected[row][i], tolerance) << what << ", token " << row << " logit " << i;
  }
  // Runs one request alone and compares its logits with the oracle's.
  void ExpectOracle(const StartSequence& start, double tolerance, const std::string& what) {
    Start(start);
    RunAll();
    const auto original = static_cast<int>(start.prompt.size() - start.delivered);
    Oracle oracle(*transformer_, start.plan, original);
    Rows expected = oracle.Logits({start.prompt.begin(), start.prompt.begin() + original}, start.forced);
    expected.erase(expected.begin(), expected.begin() + start.delivered);
    ExpectNear(recorder_.rows[start.name.id], expected, tolerance, what);
    EXPECT_EQ(ends_[start.name.id].kv.tokens, oracle.entries(0)) << what;
  }

  std::unique_ptr<FakeTransformer> transformer_;
  std::unique_ptr<Engine> engine_;
  Recorder recorder_;
  std::map<uint64_t, SequenceOutput> ends_;
  std::vector<CanaryFrame> frames_;
};

TEST_F(EvictionTest, EqualsThePlainImplementationForEveryLength) {
  for (const uint32_t prompt : {1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192, 193, 320}) {
    for (const uint32_t keep : {1, 65, 150}) {
      Make();
      ExpectOracle(Request(1, prompt, 70, Plan("ppp", keep)), 2e-3, absl::StrCat("prompt ", prompt, " keep ", keep));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(EvictionTest, EqualsThePlainImplementationForEveryShapeAndChunk) {
  const FakeTransformer::Shape shapes[] = {{.heads = 6, .kv_heads = 1, .head_dim = 32},
                                           {.heads = 3, .kv_heads = 3, .head_dim = 16},
                                           {.heads = 10, .kv_heads = 2, .head_dim = 48}};
  for (const auto& shape : shapes) {
    for (const uint32_t chunk : {7, 256}) {
      Make(shape, chunk);
      ExpectOracle(Request(2, 300, 40, Plan("ppp", 100)), 2e-3,
                   absl::StrCat("heads ", shape.heads, " over ", shape.kv_heads, " chunk ", chunk));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(EvictionTest, WidthsCompose) {
  for (const auto& [keys, values] : {std::pair(Width::kInt8, Width::kInt8), std::pair(Width::kFp16, Width::kInt8)}) {
    Make();
    ExpectOracle(Request(3, 400, 70, Plan("ppp", 200, keys, values)), 5e-2, Name(keys));
  }
  Make();  // follows the tiers
  StartSequence start = Request(4, 400, 70, CachePlan{.follow_tiers = true, .layers = {}, .keep_tokens = 200});
  TierVector tiers = engine_->tiers();
  for (LayerTier& tier : tiers.layers) tier = {.keys = Width::kInt4, .values = Width::kInt2};
  ASSERT_TRUE(engine_->ApplyTiers(tiers).ok());
  Start(start);
  while (recorder_.rows[4].empty()) Turn();
  const SequenceInfo info = engine_->Describe()[0];
  EXPECT_EQ(info.positions, 400u);
  EXPECT_EQ(info.tokens, 208u);
  ASSERT_EQ(info.layers[1].key_pages.size(), 3u);
  EXPECT_EQ(info.layers[1].tail, 16u);  // as without eviction: 400 mod 64
  EXPECT_EQ(info.layers[1].key_pages[0].width, Width::kFp16);
  EXPECT_EQ(info.layers[1].key_pages[2].width, Width::kInt4);
  EXPECT_EQ(info.layers[1].value_pages[2].width, Width::kInt2);
  RunAll();
  EXPECT_EQ(ends_[4].kv.tokens, 208u + 69);
  EXPECT_EQ(engine_->stats().evicted_tokens, 192u);
}

TEST_F(EvictionTest, KeepingAllChangesNoBit) {
  Rows rows[2];
  std::vector<SequenceInfo> infos[2];
  const uint32_t keeps[] = {0, 300};
  for (int i = 0; i < 2; ++i) {
    Make();
    Start(Request(1, 300, 70, Plan("ppp", keeps[i], Width::kInt4, Width::kInt2)));
    while (recorder_.rows[1].size() < 69) Turn();
    infos[i] = engine_->Describe();
    RunAll();
    rows[i] = recorder_.rows[1];
  }
  EXPECT_EQ(rows[0], rows[1]);
  for (int layer = 0; layer < 3; ++layer)
    for (size_t page = 0; page < 5; ++page)
      EXPECT_EQ(infos[0][0].layers[layer].key_pages[page].hash, infos[1][0].layers[layer].key_pages[page].hash);
}

// A further attempt brings delivered tokens behind the prompt: they stay, and attend to what stayed.
TEST_F(EvictionTest, AnotherAttemptRebuildsTheSameCache) {
  for (const char* layers : {"ppp", "pii"}) {
    for (const uint32_t delivered : {1, 40, 100}) {
      Make({}, 48);
      StartSequence again = Request(1, 333, 130, Plan(layers, 130));
      again.name.attempt = 1;
      again.delivered = delivered;
      again.prompt.insert(again.prompt.end(), again.forced.begin(), again.forced.begin() + delivered);
      ExpectOracle(again, 2e-3, absl::StrCat(layers, " delivered ", delivered));
      EXPECT_EQ(ends_[1].kv.tokens, 333u - 192 + 129);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(EvictionTest, InheritingLayersReadTheirAnchor) {
  for (const char* layers : {"ppi", "pip", "pii"}) {
    for (const uint32_t keep : {0, 100}) {
      for (const uint32_t chunk : {50, 256}) {
        Make({}, chunk);
        ExpectOracle(Request(5, 270, 70, Plan(layers, keep)), 2e-3, absl::StrCat(layers, " keep ", keep));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(EvictionTest, AmongOthersAsAlone) {
  const StartSequence mixed[] = {Request(1, 270, 80, Plan("pip", 100, Width::kInt4, Width::kInt4)),
                                 Request(2, 400, 80, Plan("ppp", 0, Width::kInt8, Width::kInt2)),
                                 Request(3, 200, 80, Plan("pii", 0, Width::kInt2, Width::kInt8)),
                                 Request(4, 350, 80, Plan("ppp", 128, Width::kInt2, Width::kInt4))};
  std::map<uint64_t, Rows> alone;
  for (const StartSequence& start : mixed) {
    Make();
    Start(start);
    RunAll();
    alone[start.name.id] = recorder_.rows[start.name.id];
  }
  Make();
  for (const StartSequence& start : mixed) Start(start);
  RunAll();
  for (const StartSequence& start : mixed) EXPECT_EQ(recorder_.rows[start.name.id], alone[start.name.id]) << start.name.id;
}

TEST_F(EvictionTest, BytesAccountedAreBytesHeld) {
  Make();
  const std::vector<LayerBytes> bytes = engine_->layer_bytes();
  Start(Request(1, 330, 60, Plan("pip", 200, Width::kInt4, Width::kInt8)));
  while (recorder_.rows[1].empty()) Turn();
  // 202 of 330 tokens stay: three pages, the first FP16, and a tail of 10; the second layer holds nothing.
  uint64_t held = 0;
  for (const int layer : {0, 2})
    held += bytes[layer].ring + bytes[layer].key_page[3] + bytes[layer].value_page[3] +
            2 * (bytes[layer].key_page[1] + bytes[layer].value_page[2]);
  EXPECT_EQ(engine_->stats().used_bytes, held);
  RunAll();
  const KvUsage& kv = ends_[1].kv;
  EXPECT_EQ(kv.tokens, 202u + 59);
  for (const int layer : {0, 2}) held += bytes[layer].key_page[1] + bytes[layer].value_page[2];
  EXPECT_EQ(kv.bytes, held);
  EXPECT_EQ(kv.fp16_bytes, (330u + 59) * 3 * 2 * 2 * 16 * 2);  // tokens, layers, keys and values, heads, channels, bytes
  EXPECT_NEAR(kv.bits_per_element, held * 8. / (261 * 2 * 2 * 2 * 16), 1e-9);
  EXPECT_NEAR(kv.payload_bits, (64. * 16 + 192. * 6 + 5. * 16) / 261, 1e-9);
}

// Layer 0's ring and queries depend on no cache. Readings are divided by the root of the tokens that attention reads.
TEST_F(EvictionTest, TheCanaryReadsTheSameRing) {
  std::vector<CanaryFrame> frames[3];
  const CachePlan plans[] = {Plan("ppp", 0), Plan("ppp", 100), Plan("pii", 0)};
  for (int i = 0; i < 3; ++i) {
    Make();
    TierVector tiers = engine_->tiers();
    tiers.canary_rate = 0.2;
    ASSERT_TRUE(engine_->ApplyTiers(tiers).ok());
    Start(Request(1, 300, 150, plans[i]));
    RunAll();
    frames[i] = frames_;
  }
  ASSERT_GT(frames[0].size(), 10u);
  ASSERT_EQ(frames[0].size(), frames[1].size());
  ASSERT_EQ(frames[0].size(), frames[2].size());
  for (size_t f = 0; f < frames[0].size(); ++f) {
    const CanaryFrame &whole = frames[0][f], &evicted = frames[1][f], &inherited = frames[2][f];
    EXPECT_EQ(whole.tokens, evicted.tokens + 192);
    ASSERT_EQ(evicted.readings.size(), 3u);
    ASSERT_EQ(inherited.readings.size(), 1u);  // layers that inherit have nothing to seal
    EXPECT_EQ(inherited.readings[0].layer, 0u);
    for (int b = 0; b < 3; ++b) {
      EXPECT_NEAR(evicted.readings[0].kl[b] / whole.readings[0].kl[b] *
                      std::sqrt(double(evicted.tokens) / double(whole.tokens)),
                  1, 1e-4);
      EXPECT_GE(inherited.readings[0].kl[b], whole.readings[0].kl[b]);
    }
  }
}

TEST_F(EvictionTest, FitsWhereTheWholePromptWouldNot) {
  const FakeTransformer::Shape large{.layers = 2, .heads = 8, .kv_heads = 8, .head_dim = 64};
  engine_.reset();
  transformer_ = std::make_unique<FakeTransformer>(large);
  EngineOptions options{.pool_bytes = 6 << 20, .target = AvailableTargets().front()};
  engine_ = *Engine::Create(*transformer_, options, SystemClock());
  // Pages of 64 KiB: 10 rows of 4 take two slabs, beside the rings' slab and 1.4 MiB of staging nothing is left.
  StartSequence start = Request(1, 64 * 10 + 5, 3, Plan("pp", 0));
  EXPECT_EQ(engine_->Start(start).code(), absl::StatusCode::kInvalidArgument);
  start.plan.keep_tokens = 200;
  Start(start);
  RunAll();
  EXPECT_EQ(ends_[1].finish, FinishReason::kLength);
  EXPECT_EQ(ends_[1].kv.tokens, 197u + 64 + 2);
}

}  // namespace
}  // namespace stria
