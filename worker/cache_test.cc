// The LayerCaches with made-up rows: what the rings hold, what pages are sealed from, what attention sees.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "worker/canary_probe.h"
#include "worker/decode_cache.h"
#include "worker/prefill_cache.h"
#include "worker/sequence_cache.h"

namespace stria {
namespace {

constexpr int kLayers = 2, kHeads = 4, kKvHeads = 2, kDim = 32;
constexpr int kKvWidth = kKvHeads * kDim, kQWidth = kHeads * kDim;

// Element c of token `position`'s keys (kind 0), values (1) or queries (2) in a layer. Keys get a channel
// bias.
float Element(int kind, int layer, int position, int c) {
  const double u = Uniform(100 + kind, layer, uint64_t(position) * 1000 + c) - 0.5;
  return static_cast<float>(kind == 0 ? 2 * u + (c % 7 == 3 ? 4 : 0) : 2 * u);
}

std::vector<float> Rows(int kind, int layer, int begin, int end) {
  const int width = kind == 2 ? kQWidth : kKvWidth;
  std::vector<float> rows;
  for (int position = begin; position < end; ++position)
    for (int c = 0; c < width; ++c) rows.push_back(Element(kind, layer, position, c));
  return rows;
}

class CacheTest : public testing::Test {
 protected:
  CacheTest() {
    ModelConfig model;
    model.layers = kLayers;
    model.hidden = 16;
    model.heads = kHeads;
    model.kv_heads = kKvHeads;
    model.head_dim = kDim;
    layout_ = std::make_unique<CacheLayout>(*CacheLayout::Create(model, 1));
    pool_ = *PagePool::Create(64 << 20, true);
    tiers_.layers.resize(kLayers);
  }

  std::unique_ptr<SequenceCache> Sequence(uint32_t prompt) {
    auto cache = std::make_unique<SequenceCache>(*layout_, *pool_, counts_, plan_);
    EXPECT_TRUE(cache->AllocatePrompt(prompt, tiers_, Placement::kNeighbours));
    return cache;
  }

  void Prefill(SequenceCache& cache, int tokens, int chunk) {
    PrefillCache prefill(*layout_, BestTarget(), 1);
    const auto count = static_cast<uint32_t>(tokens), shared = cache.shared_pages() * kPageTokens;
    const auto staging = PromptStaging::Take(*layout_, 16, {count, count, 0, shared}, *pool_, true);
    ASSERT_NE(staging, nullptr);
    EXPECT_EQ(pool_->charged_bytes(),
              uint64_t(count - shared) * 16 * 4 + uint64_t(count) * (kKvHeads * 4 + 2 * kKvWidth * 2));
    const int first = static_cast<int>(shared);
    for (int layer = 0; layer < kLayers; ++layer)
      for (int begin = first; begin < tokens; begin += chunk) {
        const int end = std::min(begin + chunk, tokens);
        const auto q = Rows(2, layer, begin, end), k = Rows(0, layer, begin, end),
                   v = Rows(1, layer, begin, end);
        std::vector<float> out(q.size());
        prefill.SetChunk(cache, nullptr, *staging, begin, end);
        prefill.AppendAndAttend(layer, {end - begin, q.data(), k.data(), v.data(), out.data()});
        for (float x : out) ASSERT_TRUE(std::isfinite(x));
      }
    cache.FinishPrompt(tokens, 0);
  }

  // One step of one sequence; its attention is checked against doubles over the unsealed pages and the exact
  // tail.
  void Step(DecodeCache& decode, SequenceCache& cache, double tolerance) {
    const int position = static_cast<int>(cache.tokens());
    ASSERT_TRUE(cache.AllocateNextPage(tiers_, Placement::kNeighbours));
    SequenceCache* batch[] = {&cache};
    decode.Begin(batch, nullptr);
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto q = Rows(2, layer, position, position + 1), k = Rows(0, layer, position, position + 1);
      const auto v = Rows(1, layer, position, position + 1);
      std::vector<float> out(kQWidth);
      decode.AppendAndAttend(layer, {1, q.data(), k.data(), v.data(), out.data()});
      const std::vector<double> expected = Attend(cache, layer, position, q);
      for (int c = 0; c < kQWidth; ++c)
        ASSERT_NEAR(out[c], expected[c], tolerance) << "position " << position << " channel " << c;
    }
    decode.End();
  }

  std::vector<double> Attend(const SequenceCache& cache, int layer, int position,
                             const std::vector<float>& q) const {
    return Attend(cache, layer, position, q, cache.sealed_pages());
  }
  std::vector<double> Attend(const SequenceCache& cache, int layer, int position, const std::vector<float>& q,
                             uint32_t pages) const {
    const int sealed = static_cast<int>(pages) * kPageTokens;
    std::vector<float> keys(size_t(sealed) * kKvWidth), values(keys.size());
    for (uint32_t page = 0; page < pages; ++page) {
      UnsealKeys(layout_->shape(), cache.key_pages(layer)[page],
                 keys.data() + size_t(page) * kPageTokens * kKvWidth);
      UnsealValues(layout_->shape(), cache.value_pages(layer)[page],
                   values.data() + size_t(page) * kPageTokens * kKvWidth);
    }
    const auto at = [&](int kind, int token, int head, int c) -> double {
      if (token < sealed)
        return (kind == 0 ? keys : values)[size_t(token / kPageTokens) * kPageTokens * kKvWidth +
                                           (size_t(head) * kPageTokens + token % kPageTokens) * kDim + c];
      return ToFloat(ToHalf(Element(kind, layer, token, head * kDim + c)));
    };
    std::vector<double> out(kQWidth);
    for (int head = 0; head < kHeads; ++head) {
      const int kv = head / (kHeads / kKvHeads);
      std::vector<double> scores(position + 1);
      double total = 0;
      for (int token = 0; token <= position; ++token) {
        for (int c = 0; c < kDim; ++c) scores[token] += q[head * kDim + c] * at(0, token, kv, c);
        total += scores[token] = std::exp(scores[token] / std::sqrt(double(kDim)));
      }
      for (int token = 0; token <= position; ++token)
        for (int c = 0; c < kDim; ++c) out[head * kDim + c] += scores[token] / total * at(1, token, kv, c);
    }
    return out;
  }

  void ExpectRing(const SequenceCache& cache) const {
    const int tokens = static_cast<int>(cache.tokens());
    const int first = static_cast<int>(cache.shared_pages()) * kPageTokens;
    EXPECT_EQ(cache.ring_keys(), static_cast<uint32_t>(std::min(tokens - first, kPageTokens)));
    for (int layer = 0; layer < kLayers; ++layer)
      for (int token = std::max(first, tokens - kPageTokens); token < tokens; ++token)
        for (int head = 0; head < kKvHeads; ++head)
          for (int c = 0; c < kDim; ++c)
            ASSERT_EQ(
                cache.key_ring(layer)[(size_t(head) * kPageTokens + token % kPageTokens) * kDim + c].bits,
                ToHalf(Element(0, layer, token, head * kDim + c)).bits)
                << "token " << token << " of " << tokens;
  }

  CachePlan plan_;
  TierVector tiers_;
  std::unique_ptr<CacheLayout> layout_;
  std::unique_ptr<PagePool> pool_;
  PageCounts counts_;
};

TEST_F(CacheTest, RingHoldsTheLastKeysAsTheyWere) {
  for (LayerTier& tier : tiers_.layers) tier = {.keys = Width::kInt2, .values = Width::kInt2};
  for (int prompt : {1, 63, 64, 65, 200}) {
    auto cache = Sequence(prompt);
    Prefill(*cache, prompt, 50);
    ExpectRing(*cache);
    DecodeCache decode(*layout_, BestTarget(), 1, 1);
    for (int i = 0; i < 140; ++i) {
      Step(decode, *cache, 0.05);  // INT2 paths may quantise the query too
      ExpectRing(*cache);
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(cache->sealed_pages(), (prompt + 140u) / kPageTokens);
    EXPECT_EQ(cache->key_pages(1)[0].width, Width::kFp16);
    EXPECT_EQ(cache->key_pages(1)[1].width, Width::kInt2);
  }
  EXPECT_EQ(pool_->used_bytes(), 0u);
}

// A page sealed in a decode step holds the bytes that a prompt's page of the same tokens holds.
TEST_F(CacheTest, DecodePagesEqualPromptPages) {
  tiers_.layers[0] = {.keys = Width::kInt4, .values = Width::kInt8};
  tiers_.layers[1] = {.keys = Width::kInt8, .values = Width::kInt2};
  auto prompted = Sequence(256), stepped = Sequence(1);
  Prefill(*prompted, 256, 64);
  Prefill(*stepped, 1, 64);
  DecodeCache decode(*layout_, BestTarget(), 1, 1);
  for (int i = 1; i < 256; ++i) Step(decode, *stepped, 0.05);
  for (int layer = 0; layer < kLayers; ++layer)
    for (int page = 0; page < 4; ++page) {
      const PageRef &a = prompted->key_pages(layer)[page], &b = stepped->key_pages(layer)[page];
      ASSERT_EQ(a.width, b.width);
      EXPECT_EQ(std::memcmp(a.data, b.data, layout_->key_page_bytes(layer, a.width)), 0)
          << layer << " " << page;
      const PageRef &c = prompted->value_pages(layer)[page], &d = stepped->value_pages(layer)[page];
      ASSERT_EQ(c.width, d.width);
      EXPECT_EQ(std::memcmp(c.data, d.data, layout_->value_page_bytes(layer, c.width)), 0)
          << layer << " " << page;
    }
  EXPECT_EQ(prompted->bytes(), stepped->bytes());
  EXPECT_EQ(pool_->used_bytes(), 2 * prompted->bytes());
}

// A prompt behind shared pages: its rows attend to what the pages read as, the ring begins behind them, and
// decoding goes on over them.
TEST_F(CacheTest, SharedPagesAreReadAndNeverEnterTheRing) {
  tiers_.layers[0] = {.keys = Width::kInt4, .values = Width::kInt8};
  tiers_.layers[1] = {.keys = Width::kInt8, .values = Width::kInt2};
  auto first = Sequence(200);
  Prefill(*first, 200, 64);
  for (int prompt : {129, 140, 192, 193, 250}) {
    auto cache = std::make_unique<SequenceCache>(*layout_, *pool_, counts_, plan_);
    cache->Share(first->Row(0));
    cache->Share(first->Row(1));
    ASSERT_TRUE(cache->AllocatePrompt(prompt, tiers_, Placement::kNeighbours));
    const auto count = static_cast<uint32_t>(prompt);
    const auto staging = PromptStaging::Take(*layout_, 16, {count, count, 0, 128}, *pool_, true);
    ASSERT_NE(staging, nullptr);
    PrefillCache prefill(*layout_, BestTarget(), 1);
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto q = Rows(2, layer, 128, prompt), k = Rows(0, layer, 128, prompt), v = Rows(1, layer, 128, prompt);
      std::vector<float> out(q.size());
      prefill.SetChunk(*cache, nullptr, *staging, 128, prompt);
      prefill.AppendAndAttend(layer, {prompt - 128, q.data(), k.data(), v.data(), out.data()});
      // The first two rows, against doubles over the shared pages and exact tokens.
      for (int row = 0; row < std::min(2, prompt - 128); ++row) {
        const auto expected = Attend(*first, layer, 128 + row, Rows(2, layer, 128 + row, 129 + row), 2);
        for (int c = 0; c < kQWidth; ++c) ASSERT_NEAR(out[row * kQWidth + c], expected[c], 0.03) << prompt;
      }
    }
    cache->FinishPrompt(prompt, 0);
    ExpectRing(*cache);
    EXPECT_EQ(cache->Row(0).ancestors, Width::kFp16);
    if (prompt >= 192) {
      EXPECT_EQ(cache->Row(2).ancestors, Width::kInt2);  // it attended to the second page
    }
    DecodeCache decode(*layout_, BestTarget(), 1, 1);
    for (int i = 0; i < 140; ++i) {
      Step(decode, *cache, 0.05);
      ExpectRing(*cache);
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(cache->bytes() + first->bytes(),
              pool_->used_bytes() - pool_->charged_bytes() + [&] {  // two rows are held once
                uint64_t shared = 0;
                for (int page : {0, 1})
                  for (int layer = 0; layer < kLayers; ++layer)
                    shared += layout_->key_page_bytes(layer, cache->key_pages(layer)[page].width) +
                              layout_->value_page_bytes(layer, cache->value_pages(layer)[page].width);
                return shared;
              }());
  }
  // A page that decode sealed was computed over those before it, the prompt's pages over none.
  EXPECT_EQ(first->Row(2).ancestors, Width::kFp16);
  DecodeCache decode(*layout_, BestTarget(), 1, 1);
  while (first->sealed_pages() < 4) Step(decode, *first, 0.05);
  EXPECT_EQ(first->Row(3).ancestors, Width::kInt2);
  first.reset();
  EXPECT_EQ(pool_->used_bytes(), 0u);
  for (uint64_t pages : counts_.by_width) EXPECT_EQ(pages, 0u);
}

TEST_F(CacheTest, ProbePassesOverShortRings) {
  auto first = Sequence(64);
  Prefill(*first, 64, 64);
  SequenceCache cache(*layout_, *pool_, counts_, plan_);
  cache.Share(first->Row(0));
  ASSERT_TRUE(cache.AllocatePrompt(70, tiers_, Placement::kNeighbours));
  Prefill(cache, 70, 64);
  CanaryProbe probe(*layout_, BestTarget(), 1, 7, SystemClock());
  DecodeCache decode(*layout_, BestTarget(), 1, 1);
  SequenceCache* batch[] = {&cache};
  for (int i = 0; i < 9; ++i) {
    EXPECT_FALSE(probe.Arm(batch, i)) << cache.tokens();
    Step(decode, cache, 0.05);
  }
  EXPECT_TRUE(probe.Arm(batch, 9));  // 15 keys of its own, and the step's
}

// The probe's readings are the reference's for that ring and those queries, divided by √(L/L0) and averaged.
TEST_F(CacheTest, ProbeReadsRingsOfSampledSequences) {
  auto a = Sequence(20), b = Sequence(100), c = Sequence(10);  // the last has too few keys
  Prefill(*a, 20, 64);
  Prefill(*b, 100, 64);
  Prefill(*c, 10, 64);
  CanaryProbe probe(*layout_, BestTarget(), 1, 7, SystemClock());
  DecodeCache decode(*layout_, BestTarget(), 1, 3);
  SequenceCache* batch[] = {a.get(), b.get(), c.get()};
  ASSERT_TRUE(probe.Arm(batch, 42));
  decode.Begin(batch, &probe);
  std::vector<std::vector<float>> queries;
  for (int layer = 0; layer < kLayers; ++layer) {
    std::vector<float> q, k, v, out(3 * kQWidth);
    for (int position : {20, 100, 10}) {
      for (float x : Rows(2, layer, position, position + 1)) q.push_back(x);
      for (float x : Rows(0, layer, position, position + 1)) k.push_back(x);
      for (float x : Rows(1, layer, position, position + 1)) v.push_back(x);
    }
    decode.AppendAndAttend(layer, {3, q.data(), k.data(), v.data(), out.data()});
    queries.push_back(std::move(q));
  }
  decode.End();
  tiers_.epoch = 9;
  tiers_.reference_length = 400;
  const CanaryFrame frame = probe.Read(tiers_);
  EXPECT_EQ(frame.sequences, 2u);
  EXPECT_EQ(frame.tokens, 21u + 101u);
  EXPECT_EQ(frame.step, 42u);
  EXPECT_EQ(frame.epoch, 9u);
  for (int layer = 0; layer < kLayers; ++layer) {
    double first[3], second[3];
    CanaryReadingReference(layout_->shape(), a->key_ring(layer), 21, queries[layer].data(), first);
    CanaryReadingReference(layout_->shape(), b->key_ring(layer), 64, queries[layer].data() + kQWidth, second);
    for (int w = 0; w < 3; ++w) {
      const double expected = (first[w] / std::sqrt(21 / 400.) + second[w] / std::sqrt(101 / 400.)) / 2;
      EXPECT_NEAR(frame.readings[layer].kl[w] / expected, 1, 0.02) << w;
    }
  }
  SequenceCache* none[] = {c.get()};
  EXPECT_FALSE(probe.Arm(none, 43));
}

TEST_F(CacheTest, FiresAtItsRate) {
  CanaryProbe probe(*layout_, BestTarget(), 1, 7, SystemClock());
  int fired = 0;
  for (uint64_t step = 0; step < 64000; ++step) fired += probe.Fires(tiers_, step);
  EXPECT_NEAR(fired, 1000, 100);
  tiers_.frozen = true;
  for (uint64_t step = 0; step < 6400; ++step) EXPECT_FALSE(probe.Fires(tiers_, step));
  tiers_.frozen = false;
  tiers_.canary_rate = 0;
  for (uint64_t step = 0; step < 6400; ++step) EXPECT_FALSE(probe.Fires(tiers_, step));
}

// The first page's size is not that of the pages behind it: hundreds of sequences that grow past it together open no slabs beyond what they fill.
TEST_F(CacheTest, FirstPagesKeepNoNeighbours) {
  LayerAction narrow;
  narrow.keys = narrow.values = Width::kInt4;
  const CachePlan plan{.follow_tiers = false, .layers = {narrow, narrow}};
  std::vector<std::unique_ptr<SequenceCache>> caches;
  DemandList demand;
  for (int i = 0; i < 400; ++i) {
    SequenceCache& cache = *caches.emplace_back(std::make_unique<SequenceCache>(*layout_, *pool_, counts_, plan));
    ASSERT_TRUE(cache.AllocatePrompt(0, tiers_, Placement::kNeighbours));
    for (uint32_t token = 0; token + 1 < kPageTokens; ++token) cache.CountToken();
    layout_->AddRings(plan, demand);
    layout_->AddPages(plan, tiers_, 0, 1, demand);
  }
  for (const auto& cache : caches) ASSERT_TRUE(cache->AllocateNextPage(tiers_, Placement::kNeighbours));
  EXPECT_LE(pool_->held_bytes(), PagePool::Footprint(demand.demands(), 0) + 2 * kSlabBytes);
}

}  // namespace
}  // namespace stria
