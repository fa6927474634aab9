// The engine over a tiny transformer: life of sequences, memory, order. Numbers of the real model are in
// model_test.cc.
#include "worker/engine.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/random.h"
#include "gtest/gtest.h"
#include "worker/fake_transformer.h"

namespace stria {
namespace {

constexpr int kVocab = 61;

CachePlan Plain(Width keys, Width values, int layers = 3) {
  CachePlan plan{.follow_tiers = false, .layers = {}};
  LayerAction action;
  action.keys = keys;
  action.values = values;
  plan.layers.assign(layers, action);
  return plan;
}

std::vector<int32_t> Tokens(uint32_t count, uint64_t seed) {
  std::vector<int32_t> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(Uniform(seed, 9, i) * kVocab);
  return tokens;
}

StartSequence Request(uint64_t id, uint32_t prompt, uint32_t new_tokens,
                      const CachePlan& plan = Plain(Width::kInt4, Width::kInt4)) {
  StartSequence start;
  start.name = {id, 0};
  start.prompt = Tokens(prompt, id);
  start.max_new_tokens = new_tokens;
  start.sampling.temperature = 0;
  start.plan = plan;
  return start;
}

struct Ended {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  FinishReason finish = FinishReason::kNone;
  std::string message;
  KvUsage kv;
};

// Large pages, so that few tokens fill a pool: FP16 pages of 64 KiB, rings of 128 KiB, in each of 2 layers.
constexpr FakeTransformer::Shape kLargePages = {.layers = 2, .heads = 8, .kv_heads = 8, .head_dim = 64};

class EngineTest : public testing::Test {
 protected:
  void Make(EngineOptions options, const FakeTransformer::Shape& shape = {}) {
    engine_.reset();
    transformer_.emplace(shape);
    options.poison = true;
    options.target = AvailableTargets().front();
    auto engine = Engine::Create(*transformer_, options, SystemClock());
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }
  void Collect(const TurnResult& result) {
    for (const SequenceOutput& output : result.outputs) {
      Ended& ended = results_[output.name];
      EXPECT_EQ(output.first_index, first_[output.name] + ended.tokens.size()) << output.name.id;
      for (const TokenOut& token : output.tokens) {
        ended.tokens.push_back(token.token);
        ended.logprobs.push_back(token.logprob);
      }
      EXPECT_EQ(ended.finish, FinishReason::kNone);
      ended.finish = output.finish;
      ended.message = output.message;
      ended.kv = output.kv;
    }
    const EngineStats stats = engine_->stats();
    EXPECT_LE(stats.used_bytes, stats.pool_bytes);
  }
  void Start(const StartSequence& start) {
    first_[start.name] = start.delivered;
    const absl::Status status = engine_->Start(start);
    ASSERT_TRUE(status.ok()) << status;
  }
  void RunAll(int most_turns = 100000) {
    while (engine_->HasWork() && most_turns-- > 0) Collect(engine_->Turn());
    EXPECT_FALSE(engine_->HasWork());
    EXPECT_EQ(engine_->stats().used_bytes, 0u);
    for (uint64_t pages : engine_->stats().pages_used) EXPECT_EQ(pages, 0u);
  }
  std::vector<int32_t> Alone(const StartSequence& start, EngineOptions options = {}) {
    Make(options);
    Start(start);
    RunAll();
    std::vector<int32_t> tokens = results_[start.name].tokens;
    results_.clear();
    return tokens;
  }

  std::optional<FakeTransformer> transformer_;
  std::unique_ptr<Engine> engine_;
  std::map<SequenceName, Ended> results_;
  std::map<SequenceName, uint32_t> first_;
};

TEST_F(EngineTest, AloneAndAmongOthersGiveTheSameTokens) {
  for (Width width : kAllWidths) {
    StartSequence one = Request(1, 150, 100, Plain(width, width));
    one.sampling.temperature = 0.8f;  // greedy text of a random model repeats itself
    const std::vector<int32_t> alone = Alone(one);
    ASSERT_EQ(alone.size(), 100u);
    EXPECT_GT(std::set<int32_t>(alone.begin(), alone.end()).size(), 5u);  // not a constant
    Make({.max_sequences = 32});
    for (uint64_t id = 2; id <= 16; ++id)
      Start(Request(id, 1 + 17 * id, 90, Plain(kAllWidths[id % 4], kAllWidths[id % 3])));
    for (int i = 0; i < 7; ++i) Collect(engine_->Turn());
    Start(one);
    for (uint64_t id = 17; id <= 32; ++id) Start(Request(id, 300 - 9 * id, 120, Plain(width, Width::kFp16)));
    RunAll();
    EXPECT_EQ(results_[one.name].tokens, alone) << Name(width);
    results_.clear();
  }
}

TEST_F(EngineTest, ChunksDontChangeSealedBytes) {
  StartSequence start = Request(1, 200, 5, Plain(Width::kInt4, Width::kInt2));
  start.forced = Tokens(5, 77);  // the token after the prompt must not depend on rounding here
  std::vector<SequenceInfo> first;
  for (uint32_t chunk : {1u, 7u, 64u, 256u}) {
    Make({.prefill_chunk = chunk});
    Start(start);
    while (results_[start.name].tokens.empty()) Collect(engine_->Turn());
    ASSERT_EQ(results_[start.name].tokens.size(), 1u);
    const std::vector<SequenceInfo> now = engine_->Describe();
    ASSERT_EQ(now.size(), 1u);
    EXPECT_EQ(now[0].tokens, 200u);
    ASSERT_EQ(now[0].layers.size(), 3u);
    ASSERT_EQ(now[0].layers[0].key_pages.size(), 3u);
    EXPECT_EQ(now[0].layers[0].tail, 8u);
    if (first.empty()) first = now;
    for (int layer = 0; layer < 3; ++layer)
      for (int page = 0; page < 3; ++page) {
        EXPECT_EQ(now[0].layers[layer].key_pages[page].hash, first[0].layers[layer].key_pages[page].hash)
            << chunk;
        EXPECT_EQ(now[0].layers[layer].value_pages[page].hash, first[0].layers[layer].value_pages[page].hash)
            << chunk;
      }
    RunAll();
    results_.clear();
  }
}

TEST_F(EngineTest, BytesAccountedAreBytesHeld) {
  const std::vector<LayerBytes> bytes = (Make({}), engine_->layer_bytes());
  const StartSequence start = Request(1, 70, 128, Plain(Width::kInt2, Width::kInt8));
  Start(start);
  RunAll();
  const KvUsage& kv = results_[start.name].kv;
  EXPECT_EQ(kv.tokens, 70u + 127u);  // the last token is never fed
  // 3 pages: the first FP16, two at the plan's widths.
  uint64_t held = 0;
  for (const LayerBytes& layer : bytes)
    held +=
        layer.ring + layer.key_page[3] + layer.value_page[3] + 2 * (layer.key_page[0] + layer.value_page[2]);
  EXPECT_EQ(kv.bytes, held);
  EXPECT_EQ(bytes[0].ring, 2u * 2 * 64 * 16 * 2);  // keys and values, KV heads, slots, channels, FP16
  EXPECT_EQ(kv.fp16_bytes, 197u * 3 * 2 * 2 * 16 * 2);
  EXPECT_NEAR(kv.payload_bits, (64. * 16 + 128. * 5 + 5. * 16) / 197, 1e-9);
  EXPECT_NEAR(kv.bits_per_element, held * 8. / (197 * 3 * 2 * 2 * 16), 1e-9);
}

TEST_F(EngineTest, TheCacheReportAgreesWithThePagesAndTheUsage) {
  Make({});
  const std::vector<LayerBytes> bytes = engine_->layer_bytes();
  const StartSequence start = Request(1, 70, 128, Plain(Width::kInt2, Width::kInt8));
  Start(start);
  Start(Request(2, 200, 20, Plain(Width::kInt4, Width::kInt4)));
  CacheReport last;
  while (engine_->HasWork()) {
    CacheReport report = engine_->ReportCache(1);
    const std::vector<SequenceInfo> pages = engine_->Describe();
    ASSERT_EQ(report.sequences.size(), pages.size());
    for (size_t i = 0; i < pages.size(); ++i) {
      EXPECT_EQ(report.sequences[i].name, pages[i].name);
      EXPECT_EQ(report.sequences[i].tokens, pages[i].tokens);
      EXPECT_EQ(report.sequences[i].prefilling, pages[i].prefilling);
    }
    if (report.pages_of == 1 && !report.layers.empty()) {
      for (int layer = 0; layer < 3; ++layer) {
        const std::vector<PageInfo>& keys = pages[0].layers[layer].key_pages;
        ASSERT_EQ(report.layers[layer].keys.size(), keys.size());
        for (size_t page = 0; page < keys.size(); ++page) EXPECT_EQ(report.layers[layer].keys[page], keys[page].width);
      }
    }
    if (report.pages_of == 1) last = std::move(report);
    Collect(engine_->Turn());
  }
  EXPECT_EQ(engine_->ReportCache(1).pages_of, 0u) << "it is gone";
  const SequenceHeld& held = last.sequences[0];
  EXPECT_EQ(held.ring_keys, 64u);
  EXPECT_EQ(held.page_bytes[0], 2 * 3 * bytes[0].key_page[0]);
  EXPECT_EQ(held.page_bytes[1], 0u);
  EXPECT_EQ(held.page_bytes[2], 2 * 3 * bytes[0].value_page[2]);
  EXPECT_EQ(held.page_bytes[3], 3 * (bytes[0].key_page[3] + bytes[0].value_page[3]));
  EXPECT_EQ(held.ring_bytes, 3 * bytes[0].ring);
  EXPECT_EQ(held.bytes, results_[start.name].kv.bytes);
  EXPECT_EQ(held.bytes, held.ring_bytes + held.page_bytes[0] + held.page_bytes[2] + held.page_bytes[3]);
}

TEST_F(EngineTest, TiersAreForwardOnly) {
  StartSequence start = Request(1, 130, 400);
  start.plan = CachePlan();
  Make({});
  TierVector tiers = engine_->tiers();
  Start(start);
  std::map<std::tuple<int, bool, size_t>, PageInfo> seen;  // layer, keys, page
  const Width widths[] = {Width::kFp16, Width::kInt8, Width::kInt2, Width::kInt4};
  for (int turn = 0; turn < 330; ++turn) {
    if (turn % 64 == 10) {
      ++tiers.epoch;
      for (int layer = 0; layer < 3; ++layer)
        tiers.layers[layer] = {.keys = widths[(turn / 64 + layer) % 4], .values = widths[turn / 64 % 4]};
      ASSERT_TRUE(engine_->ApplyTiers(tiers).ok());
    }
    Collect(engine_->Turn());
    const std::vector<SequenceInfo> now = engine_->Describe();
    for (int layer = 0; layer < 3; ++layer)
      for (bool keys : {true, false}) {
        const auto& pages = keys ? now[0].layers[layer].key_pages : now[0].layers[layer].value_pages;
        for (size_t page = 0; page < pages.size(); ++page) {
          const auto [at, fresh] = seen.emplace(std::tuple(layer, keys, page), pages[page]);
          EXPECT_EQ(at->second.width, pages[page].width);
          EXPECT_EQ(at->second.hash, pages[page].hash);
          if (!fresh) continue;
          const LayerTier& tier = tiers.layers[layer];
          EXPECT_EQ(pages[page].width, page == 0 ? Width::kFp16 : keys ? tier.keys : tier.values);
        }
      }
  }
  std::set<Width> mixed;
  const std::vector<SequenceInfo> last = engine_->Describe();
  for (const PageInfo& page : last[0].layers[1].key_pages) mixed.insert(page.width);
  EXPECT_EQ(mixed.size(), 4u);
  engine_->Cancel(start.name);
  RunAll();
}

TEST_F(EngineTest, AGuardedPlanIsWidenedByTheGuardInForceAndTellsByHowMuch) {
  StartSequence start = Request(1, 70, 400, Plain(Width::kInt2, Width::kInt8));
  start.plan.widen = true;
  Make({});
  EXPECT_EQ(engine_->tiers().layers[0].guard_plain, Width::kInt2) << "nothing was ever measured: nothing is widened";
  Start(start);
  TierVector tiers = engine_->tiers();
  const auto guard = [&](int layer, Width width) {
    ++tiers.epoch;
    tiers.layers[layer].guard_plain = width;
    ASSERT_TRUE(engine_->ApplyTiers(tiers).ok());
  };
  const auto pages = [&]() -> size_t {
    const std::vector<SequenceInfo> now = engine_->Describe();
    return now.empty() || now[0].layers.empty() ? 0 : now[0].layers[1].key_pages.size();  // none while it waits
  };
  while (pages() < 2) Collect(engine_->Turn());
  guard(1, Width::kInt4);
  while (pages() < 3) Collect(engine_->Turn());
  guard(1, Width::kFp16);
  while (pages() < 4) Collect(engine_->Turn());
  guard(1, Width::kInt2);
  while (pages() < 5) Collect(engine_->Turn());
  const SequenceInfo now = engine_->Describe()[0];
  const auto widths = [&](int layer, bool keys) {
    std::vector<Width> widths;
    for (const PageInfo& page : keys ? now.layers[layer].key_pages : now.layers[layer].value_pages) widths.push_back(page.width);
    return widths;
  };
  using enum Width;
  EXPECT_EQ(widths(1, true), (std::vector{kFp16, kInt2, kInt4, kFp16, kInt2})) << "sealed pages keep their width";
  EXPECT_EQ(widths(1, false), (std::vector{kFp16, kInt8, kInt8, kFp16, kInt8})) << "the wider of plan and guard";
  EXPECT_EQ(widths(0, true), (std::vector{kFp16, kInt2, kInt2, kInt2, kInt2}));
  engine_->Cancel(start.name);
  RunAll();
  const KvUsage& kv = results_[start.name].kv;
  // Of layer 1's keys 2 + 14 bits, of its values 8, each for one page.
  EXPECT_NEAR(kv.guard_bits, 64. * (2 + 14 + 8) / (3. * 2 * kv.tokens), 1e-9);

  StartSequence follows = Request(2, 70, 4);
  follows.plan = CachePlan();
  follows.plan.widen = true;
  EXPECT_EQ(engine_->Start(follows).message(), "a plan that follows the tiers has nothing to widen");
}

TEST_F(EngineTest, FillsThePoolToTheLastPage) {
  // Pages and rings of one size: FP16 pages are 4096 bytes here, rings 8192; 512 pages fit in a slab.
  Make({.pool_bytes = 3 * (2 << 20), .max_sequences = 200});
  uint64_t id = 0;
  // Prompts of 2 pages and nothing to grow: 3 layers · (4 · 4096 + 8192) bytes each. Rings take 1 slab (256),
  // pages 2 (1024).
  while (++id <= 90) Start(Request(id, 128, 2, Plain(Width::kFp16, Width::kFp16)));
  uint32_t most = 0;
  while (engine_->HasWork()) {
    Collect(engine_->Turn());
    most = std::max(most, engine_->stats().running);
  }
  EXPECT_EQ(engine_->stats().used_bytes, 0u);
  EXPECT_EQ(engine_->stats().preemptions, 0u);
  EXPECT_EQ(results_.size(), 90u);
  for (const auto& [name, ended] : results_) {
    EXPECT_EQ(ended.finish, FinishReason::kLength);
    EXPECT_EQ(ended.tokens.size(), 2u);
  }

  // One sequence up to the context that arithmetic allows: rings take one slab, 2 · 512 pages hold 170 page
  // rows of 6.
  Make({.pool_bytes = 3 * (2 << 20), .max_context = 100000});
  EXPECT_TRUE(engine_->Start(Request(1, 10, 171 * 64 - 10, Plain(Width::kFp16, Width::kFp16))).ok());
  const absl::Status over = engine_->Start(Request(2, 10, 171 * 64 - 8, Plain(Width::kFp16, Width::kFp16)));
  EXPECT_EQ(over.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(over.message().find("6291456"), std::string::npos) << over;
}

TEST_F(EngineTest, CancelAtRandomPointsReturnsEveryPage) {
  const StartSequence probe = Request(1000, 100, 80);
  const std::vector<int32_t> expected = Alone(probe);
  Make({.pool_bytes = 16 << 20, .max_sequences = 8, .prefill_chunk = 32});
  uint64_t id = 0, draw = 0;
  std::vector<SequenceName> live;
  for (int turn = 0; turn < 400; ++turn) {
    if (Uniform(3, 0, draw++) < 0.4 && live.size() < 20) {
      ++id;
      const StartSequence start = Request(id, 1 + static_cast<uint32_t>(Uniform(3, 1, draw) * 400), 60,
                                          Plain(kAllWidths[id % 4], Width::kInt2));
      Start(start);
      live.push_back(start.name);
    }
    if (Uniform(3, 2, draw) < 0.3 && !live.empty()) {
      const size_t at = static_cast<size_t>(Uniform(3, 3, draw) * static_cast<double>(live.size()));
      engine_->Cancel(live[at]);
      engine_->Cancel(live[at]);  // again: harmless
      live.erase(live.begin() + at);
    }
    Collect(engine_->Turn());
  }
  for (const SequenceName& name : live) engine_->Cancel(name);
  EXPECT_EQ(engine_->stats().used_bytes, 0u);
  Start(probe);
  RunAll();
  EXPECT_EQ(results_[probe.name].tokens, expected);
}

// A test's scheduler: starts preempted sequences again with what was delivered.
TEST_F(EngineTest, TwoRequestsOfSixtyPercentBothFinish) {
  const CachePlan plan = Plain(Width::kFp16, Width::kFp16, 2);
  Make({.pool_bytes = 3 * (2 << 20)}, kLargePages);
  // Rings take a slab. Two slabs hold 64 pages, 16 rows of 4; each request comes to need 10.
  const StartSequence requests[] = {Request(1, 64 * 2, 64 * 8 + 1, plan),
                                    Request(2, 64 * 2 - 30, 64 * 8 + 31, plan)};
  std::vector<int32_t> tokens[2];
  bool done[2] = {};
  for (const StartSequence& start : requests) ASSERT_TRUE(engine_->Start(start).ok());
  int restarts = 0, turns = 0;
  while (engine_->HasWork() && ++turns < 40000) {
    for (const SequenceOutput& output : engine_->Turn().outputs) {
      const size_t i = output.name.id - 1;
      ASSERT_EQ(output.first_index, tokens[i].size());
      for (const TokenOut& token : output.tokens) tokens[i].push_back(token.token);
      if (output.finish == FinishReason::kLength) done[i] = true;
      if (output.finish != FinishReason::kPreempted) continue;
      ++restarts;
      StartSequence again = requests[i];
      again.name.attempt = output.name.attempt + 1;
      again.prompt.insert(again.prompt.end(), tokens[i].begin(), tokens[i].end());
      again.delivered = static_cast<uint32_t>(tokens[i].size());
      ASSERT_TRUE(engine_->Start(again).ok());
    }
  }
  EXPECT_TRUE(done[0] && done[1]);
  EXPECT_EQ(tokens[0].size(), 64u * 8 + 1);
  EXPECT_EQ(tokens[1].size(), 64u * 8 + 31);
  EXPECT_EQ(restarts, 1);
  EXPECT_EQ(engine_->stats().preemptions, 1u);
  EXPECT_EQ(engine_->stats().used_bytes, 0u);
}

TEST_F(EngineTest, WhenPagesRunOutTheNewestOfTheLeastImportantGoes) {
  const CachePlan plan = Plain(Width::kFp16, Width::kFp16, 2);
  Make({.pool_bytes = 3 * (2 << 20)}, kLargePages);
  // 16 rows of pages beside the rings; each sequence comes to need 6, for its last 63 steps, so that three need them together however
  // far apart prefill let them begin. Numbers: lower matters more.
  const int priorities[] = {0, 5, 5, -1};
  for (uint64_t id = 1; id <= 4; ++id) {
    StartSequence start = Request(id, 64, 64 * 6 - 1, plan);
    start.priority = priorities[id - 1];
    Start(start);
  }
  std::vector<uint64_t> preempted, finished;
  while (engine_->HasWork())
    for (const SequenceOutput& output : engine_->Turn().outputs) {
      if (output.finish == FinishReason::kPreempted) preempted.push_back(output.name.id);
      if (output.finish == FinishReason::kLength) finished.push_back(output.name.id);
    }
  EXPECT_EQ(preempted, (std::vector<uint64_t>{3, 2}));
  std::sort(finished.begin(), finished.end());
  EXPECT_EQ(finished, (std::vector<uint64_t>{1, 4}));
}

TEST_F(EngineTest, ASequenceThatOutgrowsThePoolAloneEndsWithTheNumbers) {
  StartSequence start = Request(1, 64, 64 * 30);
  start.plan = CachePlan();
  Make({.pool_bytes = 4 * (2 << 20)}, kLargePages);
  TierVector narrow = engine_->tiers();
  for (LayerTier& tier : narrow.layers) tier = {.keys = Width::kInt2, .values = Width::kInt2};
  ASSERT_TRUE(engine_->ApplyTiers(narrow).ok());
  Start(start);
  Collect(engine_->Turn());
  // FP16 from here: 30 rows of 4 pages, and there is room for 24.
  for (LayerTier& tier : narrow.layers) tier = {};
  ASSERT_TRUE(engine_->ApplyTiers(narrow).ok());  // FP16 from here: it will not fit after all
  RunAll();
  EXPECT_EQ(results_[start.name].finish, FinishReason::kError);
  EXPECT_NE(results_[start.name].message.find("8388608"), std::string::npos) << results_[start.name].message;
  EXPECT_EQ(engine_->stats().preemptions, 0u);
}

TEST_F(EngineTest, ForcedTokensAreScoredThroughDecodeSteps) {
  struct Rows : LogitsObserver {
    void OnLogits(const SequenceName&, uint32_t index, std::span<const float> logits) override {
      EXPECT_EQ(index, rows.size());
      rows.emplace_back(logits.begin(), logits.end());
    }
    std::vector<std::vector<float>> rows;
  } observer;
  StartSequence start = Request(1, 40, 0);
  start.forced = Tokens(100, 5);
  start.sampling.top_logprobs = 3;
  start.stop_tokens = {start.forced[4]};  // doesn't count in forced text
  Make({.observer = &observer});
  Start(start);
  std::vector<TokenOut> out;
  while (engine_->HasWork())
    for (const SequenceOutput& output : engine_->Turn().outputs)
      out.insert(out.end(), output.tokens.begin(), output.tokens.end());
  ASSERT_EQ(out.size(), 100u);
  ASSERT_EQ(observer.rows.size(), 100u);
  for (int i = 0; i < 100; ++i) {
    const std::vector<float>& row = observer.rows[i];
    double sum = 0;
    for (float logit : row) sum += std::exp(double(logit));
    EXPECT_EQ(out[i].token, start.forced[i]);
    EXPECT_NEAR(out[i].logprob, row[start.forced[i]] - std::log(sum), 1e-4);
    ASSERT_EQ(out[i].top.size(), 3u);
    EXPECT_NEAR(out[i].top[0].logprob, *std::max_element(row.begin(), row.end()) - std::log(sum), 1e-4);
    EXPECT_GE(out[i].top[0].logprob, out[i].top[1].logprob);
  }
}

// FP16 pages hold what the tail held: decoding over them equals prefilling the same text.
TEST_F(EngineTest, ForcedTextEqualsPrefilledText) {
  struct Last : LogitsObserver {
    void OnLogits(const SequenceName&, uint32_t, std::span<const float> logits) override {
      row.assign(logits.begin(), logits.end());
    }
    std::vector<float> row;
  } stepped, prefilled;
  const CachePlan plan = Plain(Width::kFp16, Width::kFp16);
  StartSequence start = Request(1, 30, 0, plan);
  start.forced = Tokens(171, 5);
  Make({.observer = &stepped});
  Start(start);
  RunAll();
  StartSequence whole = Request(2, 0, 1, plan);
  whole.prompt = start.prompt;
  whole.prompt.insert(whole.prompt.end(), start.forced.begin(), start.forced.end() - 1);
  Make({.observer = &prefilled});
  Start(whole);
  RunAll();
  for (int i = 0; i < kVocab; ++i) EXPECT_NEAR(stepped.row[i], prefilled.row[i], 2e-3) << i;
}

TEST_F(EngineTest, EndsAndIndices) {
  const std::vector<int32_t> free_run = Alone(Request(1, 20, 40));
  StartSequence stop = Request(1, 20, 40);
  stop.stop_tokens = {free_run[10]};
  const size_t first_stop = std::find(free_run.begin(), free_run.end(), free_run[10]) - free_run.begin();
  Make({});
  Start(stop);
  RunAll();
  EXPECT_EQ(results_[stop.name].finish, FinishReason::kStop);
  EXPECT_EQ(results_[stop.name].tokens,
            std::vector<int32_t>(free_run.begin(), free_run.begin() + first_stop + 1));
  results_.clear();

  // A later attempt goes on where the first left off.
  StartSequence later = Request(1, 20, 40, Plain(Width::kFp16, Width::kFp16));
  const std::vector<int32_t> exact = Alone(later);
  later.name.attempt = 1;
  later.prompt.insert(later.prompt.end(), exact.begin(), exact.begin() + 15);
  later.delivered = 15;
  Make({});
  Start(later);
  RunAll();
  EXPECT_EQ(results_[later.name].tokens, std::vector<int32_t>(exact.begin() + 15, exact.end()));
  results_.clear();

  // Nothing left to generate; the context is full.
  StartSequence nothing = Request(3, 20, 0);
  Start(nothing);
  RunAll();
  EXPECT_EQ(results_[nothing.name].finish, FinishReason::kLength);
  EXPECT_TRUE(results_[nothing.name].tokens.empty());
  Make({.max_context = 50});
  const StartSequence full = Request(4, 48, 40);
  Start(full);
  RunAll();
  EXPECT_EQ(results_[full.name].finish, FinishReason::kLength);
  EXPECT_EQ(results_[full.name].tokens.size(), 3u);  // after 48, 49 and 50 tokens
  EXPECT_EQ(results_[full.name].kv.tokens, 50u);
}

TEST_F(EngineTest, RefusesBadRequestsByName) {
  Make({.max_context = 100});
  const auto message = [&](auto change) {
    StartSequence start = Request(1, 20, 10);
    change(start);
    const absl::Status status = engine_->Start(start);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(contains(message([](auto& s) { s.prompt.clear(); }), "empty"));
  EXPECT_TRUE(contains(message([](auto& s) { s.prompt[3] = 61; }), "61"));
  EXPECT_TRUE(contains(message([](auto& s) { s.prompt[3] = -1; }), "-1"));
  EXPECT_TRUE(contains(message([](auto& s) { s.forced = {777}; }), "777"));
  EXPECT_TRUE(contains(message([](auto& s) { s.prompt.resize(101); }), "101"));
  EXPECT_TRUE(contains(message([](auto& s) { s.delivered = 21; }), "21"));
  EXPECT_TRUE(contains(message([](auto& s) { s.plan.layers.pop_back(); }), "2 layers"));
  EXPECT_TRUE(
      contains(message([](auto& s) { s.plan.layers[0].kind = LayerAction::Kind::kInherit; }), "layer 0"));
  EXPECT_TRUE(contains(message([](auto& s) { s.plan.layers[1].kind = LayerAction::Kind::kLatent; }), "pack"));
  EXPECT_TRUE(contains(message([](auto& s) { s.sampling.logit_bias = {{99, 1.f}}; }), "99"));
  EXPECT_TRUE(contains(message([](auto& s) { s.sampling.temperature = NAN; }), "temperature"));
  EXPECT_TRUE(contains(message([](auto& s) { s.sampling.repetition_penalty = 0; }), "repetition_penalty"));
  TierVector tiers = engine_->tiers();
  tiers.layers.pop_back();
  EXPECT_FALSE(engine_->ApplyTiers(tiers).ok());
  EXPECT_FALSE(engine_->HasWork());
  // The same name twice is one sequence.
  Start(Request(1, 20, 10));
  Start(Request(1, 20, 10));
  RunAll();
  EXPECT_EQ(results_.begin()->second.tokens.size(), 10u);
}

// Small requests that fit may overtake a large one that waits for memory, but not for ever.
TEST_F(EngineTest, ALargeRequestIsNotStarved) {
  const CachePlan plan = Plain(Width::kFp16, Width::kFp16, 2);
  Make({.pool_bytes = 4 * (2 << 20)}, kLargePages);
  // A slab holds 32 pages or 16 rings. The large prompt takes 48 pages and 1.6 MiB of staging: alone that
  // fits, but not beside five small ones that end at 8 pages each.
  uint64_t id = 1;
  for (; id <= 5; ++id) Start(Request(id, 64, 70 + static_cast<uint32_t>(id), plan));
  Collect(engine_->Turn());
  const StartSequence large = Request(1000, 64 * 12, 5, plan);
  Start(large);
  uint64_t small_ended = 0;
  while (results_[large.name].finish == FinishReason::kNone && id < 200) {
    Collect(engine_->Turn());
    uint64_t ended = 0;
    for (const auto& [name, result] : results_)
      ended += name.id < 1000 && result.finish != FinishReason::kNone;
    for (; small_ended < ended; ++small_ended, ++id)
      Start(Request(id, 64, 70 + static_cast<uint32_t>(id % 7), plan));
  }
  EXPECT_EQ(results_[large.name].finish, FinishReason::kLength);
  EXPECT_LE(id, 40u);  // sixteen overtakes and those that ran meanwhile
  EXPECT_GE(id, 10u);  // some did overtake
  RunAll();
}

TEST_F(EngineTest, RunsNoMoreThanMaxSequences) {
  Make({.max_sequences = 3});
  for (uint64_t id = 1; id <= 10; ++id) Start(Request(id, 10 * id, 20));
  while (engine_->HasWork()) {
    Collect(engine_->Turn());
    EXPECT_LE(engine_->stats().running + engine_->stats().prefilling, 3u);
  }
  for (const auto& [name, ended] : results_) EXPECT_EQ(ended.tokens.size(), 20u);
  EXPECT_EQ(results_.size(), 10u);
}

TEST_F(EngineTest, CanaryIsAbsoluteAndSeeded) {
  std::vector<CanaryFrame> frames[2];
  std::vector<uint64_t> steps[2];
  const Width widths[] = {Width::kFp16, Width::kInt2};
  for (int i = 0; i < 2; ++i) {
    Make({});
    TierVector tiers = engine_->tiers();
    tiers.epoch = 5;
    tiers.canary_rate = 0.25;
    for (LayerTier& tier : tiers.layers) tier = {.keys = widths[i], .values = widths[i]};
    ASSERT_TRUE(engine_->ApplyTiers(tiers).ok());
    StartSequence start = Request(1, 10, 0);
    start.plan = CachePlan();
    start.forced = Tokens(400, 8);
    Start(start);
    while (engine_->HasWork()) {
      TurnResult result = engine_->Turn();
      if (result.canary) frames[i].push_back(*std::move(result.canary));
    }
    EXPECT_EQ(engine_->stats().firings, frames[i].size());
  }
  ASSERT_EQ(frames[0].size(), frames[1].size());
  EXPECT_GT(frames[0].size(), 60u);  // about a quarter of 399 steps
  EXPECT_LT(frames[0].size(), 140u);
  bool deeper_differs = false;
  for (size_t f = 0; f < frames[0].size(); ++f) {
    const CanaryFrame &a = frames[0][f], &b = frames[1][f];
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.epoch, 5u);
    EXPECT_EQ(a.sequences, 1u);
    EXPECT_EQ(a.tokens, 10 + a.step + 1);
    EXPECT_GE(a.tokens, 16u);
    ASSERT_EQ(a.readings.size(), 3u);
    EXPECT_EQ(a.readings[0].kl, b.readings[0].kl);  // bit for bit: layer 0 sees no cache before its keys
    deeper_differs |= a.readings[2].kl != b.readings[2].kl;
    EXPECT_GT(a.readings[0].kl[0], a.readings[0].kl[1]);
    EXPECT_GT(a.readings[0].kl[1], a.readings[0].kl[2]);
  }
  EXPECT_TRUE(deeper_differs);

  TierVector off = engine_->tiers();
  off.frozen = true;
  off.canary_rate = 1;
  ASSERT_TRUE(engine_->ApplyTiers(off).ok());
  Start(Request(2, 30, 50));
  while (engine_->HasWork()) EXPECT_FALSE(engine_->Turn().canary);
  off.frozen = false;
  ASSERT_TRUE(engine_->ApplyTiers(off).ok());
  Start(Request(3, 30, 50));
  uint64_t fired = 0;
  while (engine_->HasWork()) fired += engine_->Turn().canary.has_value();
  EXPECT_EQ(fired, 49u);
}

}  // namespace
}  // namespace stria
