// Shared prefixes through the whole engine, over a tiny transformer whose rows are each computed by
// themselves: whoever shares pages must say what it would have said without.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "base/clock.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "worker/engine.h"
#include "worker/fake_transformer.h"

namespace stria {
namespace {

constexpr int kLayers = 2;
// FP16 pages of 64 KiB, rings of 128 KiB in each layer: few tokens fill a pool.
constexpr FakeTransformer::Shape kLargePages = {.layers = kLayers, .heads = 8, .kv_heads = 8, .head_dim = 64};
constexpr uint64_t kSlab = 2 << 20;

CachePlan Plain(Width width) {
  LayerAction action;
  action.keys = action.values = width;
  return {.follow_tiers = false, .layers = std::vector<LayerAction>(kLayers, action)};
}

std::vector<int32_t> Tokens(uint32_t count, uint64_t seed) {
  std::vector<int32_t> tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(Uniform(seed, 9, i) * 61);
  return tokens;
}

std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

StartSequence Request(uint64_t id, std::vector<int32_t> prompt, uint32_t new_tokens, Width width = Width::kFp16) {
  StartSequence start;
  start.name = {id, 0};
  start.prompt = std::move(prompt);
  start.max_new_tokens = new_tokens;
  start.sampling.temperature = 0.8f;  // greedy text of a random model repeats itself
  start.sampling.seed = 5;
  start.plan = Plain(width);
  return start;
}

// Every look at it takes a millisecond, so turns do the same work on every machine.
class TickingClock final : public Clock {
 public:
  MonotonicTime Now() const override { return now_ += std::chrono::milliseconds(1); }
  double UnixSeconds() const override { return 0; }

 private:
  mutable MonotonicTime now_{};
};

class PrefixEngineTest : public testing::Test {
 protected:
  void Make(EngineOptions options = {}) {
    options.poison = true;
    options.target = AvailableTargets().front();
    auto engine = Engine::Create(transformer_, options, clock_);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    results_.clear();
  }
  void Start(const StartSequence& start) {
    const absl::Status status = engine_->Start(start);
    ASSERT_TRUE(status.ok()) << status;
  }
  void Turn() {
    for (SequenceOutput& output : engine_->Turn().outputs) {
      Ended& ended = results_[output.name.id];
      for (const TokenOut& token : output.tokens) ended.tokens.push_back(token.token);
      ended.finish = output.finish;
      ended.kv = output.kv;
      ended.message = output.message;
    }
    const EngineStats stats = engine_->stats();
    EXPECT_LE(stats.used_bytes + stats.idle_bytes, stats.pool_bytes);
  }
  void RunAll() {
    for (int turns = 0; engine_->HasWork() && turns < 100000; ++turns) Turn();
    ASSERT_FALSE(engine_->HasWork());
    const EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.used_bytes, 0u);
    EXPECT_EQ(stats.shared_bytes, 0u);
    EXPECT_EQ(stats.idle_bytes, stats.prefix.bytes);
    for (uint64_t pages : stats.pages_used) EXPECT_EQ(pages, 0u);
  }
  // The same request on an engine of its own that shares nothing.
  std::vector<int32_t> Alone(const StartSequence& start) {
    EngineOptions options;
    options.target = AvailableTargets().front();
    auto engine = *Engine::Create(transformer_, options, clock_);
    EXPECT_TRUE(engine->Start(start).ok());
    std::vector<int32_t> tokens;
    while (engine->HasWork())
      for (const SequenceOutput& output : engine->Turn().outputs)
        for (const TokenOut& token : output.tokens) tokens.push_back(token.token);
    return tokens;
  }

  struct Ended {
    std::vector<int32_t> tokens;
    FinishReason finish = FinishReason::kNone;
    KvUsage kv;
    std::string message;
  };
  FakeTransformer transformer_{kLargePages};
  TickingClock clock_;
  std::unique_ptr<Engine> engine_;
  std::map<uint64_t, Ended> results_;
};

constexpr uint64_t kAll = ~uint64_t{0};

TEST_F(PrefixEngineTest, TheNextTurnOfAChatFindsItsPages) {
  Make({.prefix_cache_bytes = kAll});
  const StartSequence first = Request(1, Tokens(150, 1), 100);
  Start(first);
  RunAll();
  EXPECT_EQ(results_[1].kv.cached_tokens, 0u);
  EXPECT_EQ(engine_->stats().prompt_tokens, 150u);
  // Prompt and answer fill 3 pages (249 tokens: the last one is never fed), two of the prompt, one sealed in decode.
  EXPECT_EQ(engine_->stats().prefix.entries, 3u);
  const StartSequence second = Request(2, first.prompt + results_[1].tokens + Tokens(40, 2), 100);
  Start(second);
  RunAll();
  EXPECT_EQ(results_[2].kv.cached_tokens, 192u);
  EXPECT_EQ(engine_->stats().prompt_tokens, 150u + 290 - 192);
  EXPECT_EQ(engine_->stats().prefix.hits, 1u);
  EXPECT_EQ(engine_->stats().prefix.lookups, 2u);
  EXPECT_EQ(engine_->stats().prefix.hit_tokens, 192u);
  EXPECT_EQ(results_[1].tokens, Alone(first));
  EXPECT_EQ(results_[2].tokens, Alone(second));
}

TEST_F(PrefixEngineTest, OneTokenAtLeastIsComputed) {
  Make({.prefix_cache_bytes = kAll});
  for (uint64_t id = 1; id <= 2; ++id) Start(Request(id, Tokens(128, 1), 10)), RunAll();
  EXPECT_EQ(results_[2].kv.cached_tokens, 64u);
  Start(Request(3, Tokens(129, 1), 10));
  RunAll();
  EXPECT_EQ(results_[3].kv.cached_tokens, 128u);
  EXPECT_EQ(results_[2].tokens, results_[1].tokens);
  EXPECT_EQ(results_[3].tokens, Alone(Request(3, Tokens(129, 1), 10)));
}

TEST_F(PrefixEngineTest, AnswersToOnePromptComputeItOnce) {
  for (uint32_t chunk : {256u, 7u}) {
    Make({.prefill_chunk = chunk, .prefix_cache_bytes = kAll});
    for (uint64_t id = 1; id <= 4; ++id) Start(Request(id, Tokens(300, 1), 200 + static_cast<uint32_t>(id)));
    bool shared = false;
    while (engine_->HasWork()) {
      Turn();
      const EngineStats stats = engine_->stats();
      if (stats.running == 4) {
        // 4 pages of 64 KiB for keys and values in each layer, held once and not four times.
        EXPECT_EQ(stats.shared_bytes, 3u * 4 * 2 * kLayers * (64 << 10));
        shared = true;
      }
    }
    EXPECT_TRUE(shared);
    EXPECT_EQ(engine_->stats().prompt_tokens, 300u + 3 * (300 - 256));
    const std::vector<int32_t> alone = Alone(Request(9, Tokens(300, 1), 204));
    for (uint64_t id = 1; id <= 4; ++id)
      EXPECT_EQ(results_[id].tokens, std::vector<int32_t>(alone.begin(), alone.begin() + 200 + id));
    RunAll();
  }
}

TEST_F(PrefixEngineTest, TenantsAndThoseWhoOptOutShareNothing) {
  Make({.prefix_cache_bytes = kAll});
  StartSequence start = Request(1, Tokens(200, 1), 3);
  const auto cached = [&](uint64_t id) {
    start.name.id = id;
    Start(start);
    RunAll();
    return results_[id].kv.cached_tokens;
  };
  start.share_prefix = false;
  EXPECT_EQ(cached(1), 0u);
  EXPECT_EQ(engine_->stats().prefix.entries, 0u);
  EXPECT_EQ(engine_->stats().prefix.lookups, 0u);
  start.share_prefix = true;
  start.cache_salt = "a";
  EXPECT_EQ(cached(2), 0u);
  start.cache_salt = "b";
  EXPECT_EQ(cached(3), 0u);
  start.cache_salt = "a";
  EXPECT_EQ(cached(4), 192u);
  start.share_prefix = false;
  EXPECT_EQ(cached(5), 0u);
  start.share_prefix = true;
  start.cache_salt = "";
  EXPECT_EQ(cached(6), 0u);
  // Off: nothing is kept.
  Make({});
  EXPECT_EQ(cached(7), 0u);
  EXPECT_EQ(cached(8), 0u);
  EXPECT_EQ(engine_->stats().idle_bytes, 0u);
}

TEST_F(PrefixEngineTest, WidthsDecideWhoShares) {
  Make({.prefix_cache_bytes = kAll});
  TierVector tiers = engine_->tiers();
  uint64_t id = 0;
  const auto cached = [&](std::optional<Width> width) {
    StartSequence start = Request(++id, Tokens(300, 1), 3);
    start.plan = width ? Plain(*width) : CachePlan();
    Start(start);
    RunAll();
    return results_[id].kv.cached_tokens;
  };
  const auto put_in_force = [&](Width width) {
    for (LayerTier& tier : tiers.layers) tier = {.keys = width, .values = width};
    ASSERT_TRUE(engine_->ApplyTiers(tiers).ok());
  };
  EXPECT_EQ(cached(Width::kInt8), 0u);
  EXPECT_EQ(cached(Width::kInt4), 64u);  // the first page is FP16 for both
  EXPECT_EQ(cached(Width::kInt8), 256u);
  put_in_force(Width::kFp16);
  EXPECT_EQ(cached(std::nullopt), 64u);
  put_in_force(Width::kInt8);
  EXPECT_EQ(cached(std::nullopt), 256u);
  EXPECT_EQ(results_[id].kv.payload_bits, results_[1].kv.payload_bits);  // the INT8 pages, not the FP16 ones
  put_in_force(Width::kInt2);
  EXPECT_EQ(cached(std::nullopt), 256u);
  EXPECT_EQ(results_[id].kv.payload_bits, results_[2].kv.payload_bits);  // INT4: the narrowest that will do
}

// A layer that inherits holds no pages, so a row of pages has none of it, and pages computed at another depth are others.
TEST_F(PrefixEngineTest, PlansThatInheritShareAmongThemselves) {
  Make({.prefill_chunk = 100, .prefix_cache_bytes = kAll});
  StartSequence plain = Request(1, Tokens(300, 1), 100), inherits = plain;
  inherits.plan.layers[1].kind = LayerAction::Kind::kInherit;
  const std::vector<int32_t> expected = Alone(inherits);
  EXPECT_NE(expected, Alone(plain));
  Start(plain);
  RunAll();
  const uint64_t of_both_layers = engine_->stats().prefix.bytes;
  for (uint64_t id : {2, 3}) {
    inherits.name.id = id;
    Start(inherits);
    RunAll();
    EXPECT_EQ(results_[id].kv.cached_tokens, id == 2 ? 0u : 256u);
    EXPECT_EQ(results_[id].tokens, expected);
  }
  EXPECT_EQ(engine_->stats().prefix.bytes, of_both_layers + of_both_layers / 2);
}

// Pages of a prompt of which tokens were evicted are not its first tokens' pages. A prompt too short for its plan to evict any
// is like others.
TEST_F(PrefixEngineTest, PlansThatEvictShareNothing) {
  Make({.prefix_cache_bytes = kAll});
  Start(Request(1, Tokens(300, 1), 3));
  RunAll();
  const uint64_t entries = engine_->stats().prefix.entries;
  StartSequence evicts = Request(2, Tokens(300, 1), 100);
  evicts.plan.keep_tokens = 128;
  Start(evicts);
  RunAll();
  EXPECT_EQ(results_[2].kv.cached_tokens, 0u);
  EXPECT_EQ(results_[2].tokens, Alone(evicts));
  EXPECT_EQ(engine_->stats().evicted_tokens, 128u);
  EXPECT_EQ(engine_->stats().prefix.entries, entries);
  EXPECT_EQ(engine_->stats().prefix.lookups, 1u);
  evicts.name.id = 3;
  evicts.plan.keep_tokens = 300;
  Start(evicts);
  RunAll();
  EXPECT_EQ(results_[3].kv.cached_tokens, 256u);
}

// Prompts with common beginnings, cancels, preemptions and restarts on a pool that never has a page to spare:
// every answer is what it is alone, and no reference is lost.
TEST_F(PrefixEngineTest, SoakAtAFullPool) {
  struct Kind {
    StartSequence start;
    std::vector<int32_t> expected;
  };
  std::vector<Kind> kinds;
  for (uint64_t i = 0; i < 8; ++i) {
    const auto prompt = Tokens(130, i / 4) + Tokens(20 + 30 * static_cast<uint32_t>(i % 4), 10 + i / 2);
    Kind kind{Request(0, prompt, 60 + 17 * static_cast<uint32_t>(i)), {}};
    kind.expected = Alone(kind.start);
    kinds.push_back(std::move(kind));
  }
  // A slab holds 32 pages or 16 rings: 2 slabs for pages, 16 rows of 4, and a sequence comes to hold up to 6.
  Make({.pool_bytes = 3 * kSlab + kSlab / 2, .max_sequences = 8, .prefill_chunk = 100, .prefix_cache_bytes = kAll});
  struct Live {
    size_t kind;
    SequenceName name;
    std::vector<int32_t> tokens;
  };
  std::map<uint64_t, Live> live;
  uint64_t draws = 0, next_id = 1, finished = 0, restarts = 0, cancelled = 0;
  const auto draw = [&] { return Uniform(21, 0, draws++); };
  const auto start = [&](const Live& l) {
    StartSequence s = kinds[l.kind].start;
    s.name = l.name;
    s.prompt.insert(s.prompt.end(), l.tokens.begin(), l.tokens.end());
    s.delivered = static_cast<uint32_t>(l.tokens.size());
    Start(s);
  };
  uint64_t fullest = 0;
  while (finished < 24) {
    if (live.size() < 10 && draw() < 0.5) {
      const uint64_t id = next_id++;
      Live& l = live[id] = {static_cast<size_t>(draw() * static_cast<double>(kinds.size())), {id, 0}, {}};
      start(l);
    }
    if (!live.empty() && draw() < 0.01) {
      auto it = std::next(live.begin(), static_cast<ptrdiff_t>(draw() * static_cast<double>(live.size())));
      engine_->Cancel(it->second.name);
      live.erase(it);
      ++cancelled;
    }
    for (const SequenceOutput& output : engine_->Turn().outputs) {
      const auto it = live.find(output.name.id);
      if (it == live.end()) continue;
      Live& l = it->second;
      for (const TokenOut& token : output.tokens) l.tokens.push_back(token.token);
      if (output.finish == FinishReason::kPreempted) {
        ++restarts;
        ++l.name.attempt;
        start(l);
      } else if (output.finish != FinishReason::kNone) {
        ASSERT_EQ(output.finish, FinishReason::kLength) << output.message;
        ASSERT_EQ(l.tokens, kinds[l.kind].expected) << "kind " << l.kind;
        live.erase(it);
        ++finished;
      }
    }
    const EngineStats stats = engine_->stats();
    ASSERT_LE(stats.used_bytes + stats.idle_bytes, stats.pool_bytes);
    fullest = std::max(fullest, stats.used_bytes + stats.idle_bytes);
  }
  for (const auto& [id, l] : live) engine_->Cancel(l.name);
  RunAll();
  const EngineStats stats = engine_->stats();
  std::printf("%lu finished, %lu cancelled, %lu restarts; %lu of %lu prompts hit, %lu evictions\n", finished, cancelled,
              restarts, stats.prefix.hits, stats.prefix.lookups, stats.prefix.evictions);
  EXPECT_GE(fullest, 2 * kSlab + kSlab / 2);
  EXPECT_GT(cancelled, 2u);
  EXPECT_GT(stats.preemptions, 2u);
  EXPECT_GT(stats.prefix.hits, 12u);
  EXPECT_GT(stats.prefix.evictions, 20u);
}

// A prompt that takes the whole pool gets it: what the cache holds is free memory.
TEST_F(PrefixEngineTest, CachedPagesAreFreeMemory) {
  Make({.pool_bytes = 4 * kSlab, .prefix_cache_bytes = kAll});
  // 3 slabs for pages, 24 rows of 4; the rings take one slab.
  for (uint64_t id = 1; id <= 12; ++id) Start(Request(id, Tokens(64 * 5 + 1, id), 2)), RunAll();
  EXPECT_GT(engine_->stats().idle_bytes, kSlab);
  EXPECT_GT(engine_->stats().prefix.evictions, 0u);
  // It ends at 23 rows, after a prompt whose staging takes a slab.
  const StartSequence large = Request(100, Tokens(64 * 12, 100), 64 * 11 + 1);
  Start(large);
  RunAll();
  EXPECT_EQ(results_[100].finish, FinishReason::kLength) << results_[100].message;
  EXPECT_EQ(results_[100].tokens, Alone(large));
  EXPECT_EQ(engine_->stats().preemptions, 0u);
  // Its own prefix is there, too wide for the pool beside a prompt of other widths: that one still begins.
  Start(Request(101, Tokens(64 * 12, 100) + Tokens(10, 7), 3, Width::kInt2));
  RunAll();
  EXPECT_EQ(results_[101].finish, FinishReason::kLength);
}

}  // namespace
}  // namespace stria
