#include "worker/prefix_cache.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <set>

#include "base/random.h"
#include "gtest/gtest.h"

namespace stria {
namespace {

constexpr int kLayers = 2;

std::vector<int32_t> Tokens(int count, int first = 0) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

std::vector<PrefixKey> Keys(const std::vector<int32_t>& tokens, std::string_view salt = "") {
  PrefixChain chain("m", {}, salt);
  chain.Append(tokens);
  return chain.keys();
}

CachePlan Plain(Width keys, Width values) {
  LayerAction action;
  action.keys = keys;
  action.values = values;
  return {.follow_tiers = false, .layers = std::vector<LayerAction>(kLayers, action)};
}

class PrefixCacheTest : public testing::Test {
 protected:
  PrefixCacheTest() {
    ModelConfig model;
    model.layers = kLayers;
    model.hidden = 16;
    model.heads = model.kv_heads = 4;
    model.head_dim = 64;
    layout_ = std::make_unique<CacheLayout>(*CacheLayout::Create(model, 1));
    pool_ = *PagePool::Create(64 << 20, true);
    tiers_.layers.resize(kLayers);
    Make(~uint64_t{0});
  }
  void Make(uint64_t max_bytes) { cache_ = std::make_unique<PrefixCache>(*layout_, *pool_, max_bytes); }

  PageRow Row(Widths widths, Width ancestors = Width::kFp16) {
    PageRow row;
    row.ancestors = ancestors;
    PageRun run;
    for (int i = 0; i < kLayers; ++i)
      row.layers.push_back({i, *pool_->Allocate(layout_->key_page_bytes(i, widths.keys), run),
                            *pool_->Allocate(layout_->value_page_bytes(i, widths.values), run), widths});
    pool_->EndRun(run);
    return row;
  }
  void Ref(const PageRow& row) {
    for (const auto& layer : row.layers) pool_->Ref(layer.keys), pool_->Ref(layer.values);
  }
  void Unref(const PageRow& row) {
    for (const auto& layer : row.layers) pool_->Unref(layer.keys), pool_->Unref(layer.values);
  }
  uint64_t BytesOf(const PageRow& row) const {
    uint64_t bytes = 0;
    for (const auto& layer : row.layers) bytes += pool_->page_bytes(layer.keys) + pool_->page_bytes(layer.values);
    return bytes;
  }
  // A sequence of these page rows that ran and ended.
  std::vector<PrefixEntryId> Leave(const std::vector<PrefixKey>& keys, const std::vector<PageRow>& rows) {
    std::vector<PrefixEntryId> chain;
    cache_->Append(keys, rows, chain);
    for (const PageRow& row : rows) Unref(row);
    return chain;
  }
  size_t Found(const std::vector<PrefixKey>& keys, const CachePlan& plan) const {
    return cache_->Find(keys, plan, tiers_).size();
  }

  std::unique_ptr<CacheLayout> layout_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<PrefixCache> cache_;
  TierVector tiers_;
};

constexpr Widths kFp16 = {}, kInt8 = {Width::kInt8, Width::kInt8}, kInt4 = {Width::kInt4, Width::kInt4},
                 kInt2 = {Width::kInt2, Width::kInt2};

TEST_F(PrefixCacheTest, WhoTakesWhat) {
  const auto keys = Keys(Tokens(192));
  Leave(keys, {Row(kFp16), Row(kInt8), Row(kInt4, Width::kInt8)});
  // Exactly its widths; the first page is FP16 for all.
  EXPECT_EQ(Found(keys, Plain(Width::kFp16, Width::kFp16)), 1u);
  EXPECT_EQ(Found(keys, Plain(Width::kInt8, Width::kInt8)), 2u);
  EXPECT_EQ(Found(keys, Plain(Width::kInt8, Width::kInt4)), 1u);
  EXPECT_EQ(Found(keys, Plain(Width::kInt4, Width::kInt4)), 1u);
  // At least the tiers.
  EXPECT_EQ(Found(keys, {}), 1u);
  tiers_.layers.assign(kLayers, {.keys = Width::kInt8, .values = Width::kInt8});
  EXPECT_EQ(Found(keys, {}), 2u);
  tiers_.layers.assign(kLayers, {.keys = Width::kInt4, .values = Width::kInt2});
  EXPECT_EQ(Found(keys, {}), 3u);
  tiers_.layers[1] = {.keys = Width::kInt4, .values = Width::kInt8};  // one layer is enough to refuse
  EXPECT_EQ(Found(keys, {}), 2u);
  // Other tokens, another tenant, fewer pages wanted.
  EXPECT_EQ(Found(Keys(Tokens(192, 1)), {}), 0u);
  EXPECT_EQ(Found(Keys(Tokens(192), "tenant"), {}), 0u);
  EXPECT_EQ(Found(std::vector<PrefixKey>{keys[0]}, {}), 1u);
}

TEST_F(PrefixCacheTest, AncestorsAreAtLeastAsWideAsAskedFor) {
  const auto keys = Keys(Tokens(128));
  Leave(keys, {Row(kFp16), Row(kInt8, Width::kInt4)});
  EXPECT_EQ(Found(keys, Plain(Width::kInt8, Width::kInt8)), 1u);  // it asks for nothing under INT8
  tiers_.layers.assign(kLayers, {.keys = Width::kInt8, .values = Width::kInt8});
  EXPECT_EQ(Found(keys, {}), 1u);
  tiers_.layers[0].values = Width::kInt4;  // what the narrowest layer asks for counts
  EXPECT_EQ(Found(keys, {}), 2u);
  // The same page computed over wider ones takes its place, and is not replaced in turn.
  Leave(keys, {Row(kFp16), Row(kInt8, Width::kInt8)});
  EXPECT_EQ(cache_->stats().entries, 2u);
  EXPECT_EQ(Found(keys, Plain(Width::kInt8, Width::kInt8)), 2u);
  Leave(keys, {Row(kFp16), Row(kInt8, Width::kInt2)});
  EXPECT_EQ(cache_->stats().entries, 2u);
  EXPECT_EQ(Found(keys, Plain(Width::kInt8, Width::kInt8)), 2u);
  EXPECT_EQ(cache_->stats().evictions, 0u);
  EXPECT_EQ(pool_->used_bytes(), cache_->stats().bytes);
}

TEST_F(PrefixCacheTest, OfSeveralThatServeTheSmallest) {
  const auto keys = Keys(Tokens(128));
  Leave(keys, {Row(kFp16), Row(kFp16)});
  Leave(keys, {Row(kFp16), Row(kInt4)});
  Leave(keys, {Row(kFp16), Row(kInt8)});
  EXPECT_EQ(cache_->stats().entries, 4u);
  const auto width = [&] { return cache_->Find(keys, {}, tiers_)[1].row->layers[0].widths; };
  EXPECT_EQ(width(), kFp16);
  tiers_.layers.assign(kLayers, {.keys = Width::kInt8, .values = Width::kInt8});
  EXPECT_EQ(width(), kInt8);
  tiers_.layers.assign(kLayers, {.keys = Width::kInt2, .values = Width::kInt2});
  EXPECT_EQ(width(), kInt4);
}

TEST_F(PrefixCacheTest, ChainsAreEvictedFromTheirEnds) {
  const auto a = Keys(Tokens(256)), b = Keys(Tokens(192, 1000));
  const auto chain_a = Leave(a, {Row(kFp16), Row(kInt4), Row(kInt4), Row(kInt4)});
  Leave(b, {Row(kFp16), Row(kInt4), Row(kInt4)});
  const CachePlan int4 = Plain(Width::kInt4, Width::kInt4);
  const auto left = [&] { return std::pair(Found(a, int4), Found(b, int4)); };
  using Left = std::pair<size_t, size_t>;
  ASSERT_TRUE(cache_->EvictIdle());
  EXPECT_EQ(left(), Left(3, 3));
  cache_->Use(std::span<const PrefixEntryId>(chain_a).first(2));  // another prompt with the first two pages
  ASSERT_TRUE(cache_->EvictIdle());
  EXPECT_EQ(left(), Left(2, 3));
  ASSERT_TRUE(cache_->EvictIdle());
  EXPECT_EQ(left(), Left(2, 2));
  // What a sequence uses stays.
  const PageRow used = *cache_->Find(b, int4, tiers_)[1].row;
  Ref(used);
  ASSERT_TRUE(cache_->EvictIdle());
  EXPECT_EQ(left(), Left(2, 0));  // b's first page went; its second cannot be reached without
  ASSERT_TRUE(cache_->EvictIdle());
  ASSERT_TRUE(cache_->EvictIdle());
  EXPECT_EQ(left(), Left(0, 0));
  EXPECT_FALSE(cache_->EvictIdle());
  EXPECT_EQ(cache_->stats().entries, 1u);
  EXPECT_EQ(pool_->used_bytes(), BytesOf(used));
  // Once b's first page is back, so is the second.
  Leave(std::vector<PrefixKey>{b[0]}, {Row(kFp16)});
  EXPECT_EQ(left(), Left(0, 2));
  Unref(used);
  EXPECT_TRUE(cache_->EvictIdle());
  EXPECT_TRUE(cache_->EvictIdle());
  EXPECT_EQ(pool_->used_bytes(), 0u);
}

TEST_F(PrefixCacheTest, KeepsWithinItsBound) {
  const PageRow first = Row(kFp16);
  const uint64_t bytes = BytesOf(first);
  Make(3 * bytes);
  const auto keys = Keys(Tokens(320));
  Leave(keys, {first, Row(kFp16), Row(kFp16), Row(kFp16), Row(kFp16)});
  EXPECT_EQ(cache_->stats().bytes, 3 * bytes);
  EXPECT_EQ(cache_->stats().evictions, 2u);
  EXPECT_EQ(Found(keys, Plain(Width::kFp16, Width::kFp16)), 3u);  // the beginning
  EXPECT_EQ(pool_->used_bytes(), 3 * bytes);
  // Pages in use go from the cache, not from their sequence.
  std::vector<PrefixEntryId> chain;
  std::vector<PageRow> rows;
  for (int i = 0; i < 5; ++i) rows.push_back(Row(kFp16));
  cache_->Append(Keys(Tokens(320, 500)), rows, chain);
  EXPECT_EQ(cache_->stats().bytes, 3 * bytes);
  EXPECT_EQ(pool_->used_bytes(), 5 * bytes);
  EXPECT_EQ(pool_->idle_bytes(), 0u);
  for (const PageRow& row : rows) Unref(row);
  EXPECT_EQ(pool_->used_bytes(), 3 * bytes);
}

// Sequences come with common beginnings, take hits, seal pages, end in any order, while entries are evicted;
// a list of entries, searched from end to end, is the model.
TEST_F(PrefixCacheTest, RandomLivesAgreeWithAPlainModel) {
  struct ModelEntry {
    uint64_t id;
    PrefixKey key;
    Widths widths;
    Width ancestors;
    PageRow row;
  };
  struct Sequence {
    std::vector<PrefixKey> keys;
    Widths widths;
    std::vector<PageRow> rows;
    std::vector<PrefixEntryId> chain;
    std::vector<uint64_t> marks;  // the model's chain
  };
  std::deque<ModelEntry> model;  // the most recently used first
  std::vector<Sequence> live;
  uint64_t next_id = 1;
  const Widths choices[] = {kFp16, kInt8, kInt4, kInt2};
  uint64_t draws = 0;
  const auto draw = [&](int below) { return static_cast<int>(Uniform(11, 0, draws++) * below); };
  const auto users = [&](PageId page) {
    int count = 0;
    for (const Sequence& s : live)
      for (const PageRow& row : s.rows) count += row.layers[0].keys == page;
    return count;
  };
  const auto touch = [&](const std::vector<uint64_t>& marks) {
    for (size_t i = marks.size(); i-- > 0;) {
      const auto at = std::find_if(model.begin(), model.end(),
                                   [&](const ModelEntry& e) { return e.id == marks[i]; });
      if (at == model.end()) continue;
      const ModelEntry entry = *at;
      model.erase(at);
      model.push_front(entry);
    }
  };
  for (int step = 0; step < 4000; ++step) {
    const int what = draw(10);
    if (what < 3 && live.size() < 12) {  // begin
      Sequence s;
      s.widths = choices[draw(4)];
      std::vector<int32_t> tokens;
      for (int page = 0, branch = 0; page < 6; ++page) {
        branch = branch * 2 + (draw(4) == 0);
        for (int32_t token : Tokens(kPageTokens, branch)) tokens.push_back(token);
      }
      s.keys = Keys(tokens);
      const CachePlan plan = Plain(s.widths.keys, s.widths.values);
      const size_t most = draw(7);
      const auto hits = cache_->Find(std::span<const PrefixKey>(s.keys).first(most), plan, tiers_);
      for (size_t page = 0; page < std::min(hits.size() + 1, most); ++page) {
        const Widths want = page == 0 ? kFp16 : s.widths;
        const auto serves = [&](const ModelEntry& e) {
          return e.key == s.keys[page] && e.widths == want && Bits(e.ancestors) >= Bits(s.widths.keys);
        };
        const auto at = std::find_if(model.begin(), model.end(), serves);
        ASSERT_EQ(at == model.end(), page == hits.size());
        if (at == model.end()) break;
        ASSERT_EQ(hits[page].row->layers[1].values, at->row.layers[1].values);
        s.marks.push_back(at->id);
      }
      for (const PrefixHit& hit : hits) {
        s.rows.push_back(*hit.row);
        s.chain.push_back(hit.entry);
        Ref(*hit.row);
      }
      cache_->Use(s.chain);
      touch(s.marks);
      live.push_back(std::move(s));
    } else if (what < 7 && !live.empty()) {  // seal one page or two
      Sequence& s = live[draw(static_cast<int>(live.size()))];
      const size_t more = std::min<size_t>(1 + draw(2), s.keys.size() - s.rows.size());
      std::vector<PageRow> fresh;
      for (size_t i = 0; i < more; ++i) {
        const bool first = s.rows.size() + i == 0;
        fresh.push_back(Row(first ? kFp16 : s.widths, first ? Width::kFp16 : choices[draw(4)].keys));
      }
      for (size_t i = 0; i < more; ++i) {
        const PrefixKey& key = s.keys[s.rows.size() + i];
        const Widths widths = fresh[i].layers[0].widths;
        const auto same = std::find_if(model.begin(), model.end(),
                                       [&](const ModelEntry& e) { return e.key == key && e.widths == widths; });
        if (same != model.end() && Bits(same->ancestors) >= Bits(fresh[i].ancestors)) {
          s.marks.push_back(same->id);
          continue;
        }
        if (same != model.end()) model.erase(same);
        model.push_front({next_id, key, widths, fresh[i].ancestors, fresh[i]});
        s.marks.push_back(next_id++);
      }
      cache_->Append(s.keys, fresh, s.chain);
      s.rows.insert(s.rows.end(), fresh.begin(), fresh.end());
      touch(s.marks);
    } else if (what < 8 && !live.empty()) {  // end
      const int at = draw(static_cast<int>(live.size()));
      for (const PageRow& row : live[at].rows) Unref(row);
      live.erase(live.begin() + at);
    } else if (what == 9) {  // evict
      bool expected = false;
      for (size_t tries = model.size(); tries > 0 && !expected; --tries) {
        const ModelEntry last = model.back();
        model.pop_back();
        if (users(last.row.layers[0].keys) > 0)
          model.push_front(last);
        else
          expected = true;
      }
      // When nothing is idle the order stays as it was: the model went round once.
      ASSERT_EQ(cache_->EvictIdle(), expected);
    }
    ASSERT_EQ(cache_->stats().entries, model.size());
    uint64_t idle = 0, kept = 0;
    std::set<PageId> pages;
    uint64_t used = 0;
    for (const ModelEntry& e : model) {
      kept += BytesOf(e.row);
      if (users(e.row.layers[0].keys) == 0) idle += BytesOf(e.row);
      if (pages.insert(e.row.layers[0].keys).second) used += BytesOf(e.row);
    }
    for (const Sequence& s : live)
      for (const PageRow& row : s.rows)
        if (pages.insert(row.layers[0].keys).second) used += BytesOf(row);
    ASSERT_EQ(cache_->stats().bytes, kept);
    ASSERT_EQ(pool_->idle_bytes(), idle);
    ASSERT_EQ(pool_->used_bytes(), used);
  }
  EXPECT_GT(cache_->stats().hits, 100u);
  EXPECT_GT(cache_->stats().evictions, 100u);
  for (const Sequence& s : live)
    for (const PageRow& row : s.rows) Unref(row);
  EXPECT_EQ(pool_->used_bytes(), cache_->stats().bytes);
  cache_->Flush();
  EXPECT_EQ(pool_->used_bytes(), 0u);
  EXPECT_EQ(pool_->pages_in_use(), 0u);
}

// What fits once idle pages are let go is what fits after they were.
TEST_F(PrefixCacheTest, IdlePagesCountAsFreeExactly) {
  uint64_t draws = 0, both[2] = {};
  const auto draw = [&](int below) { return static_cast<int>(Uniform(12, 0, draws++) * below); };
  const Widths choices[] = {kFp16, kInt8, kInt4, kInt2};
  for (int round = 0; round < 40; ++round) {
    Make(0);
    pool_ = *PagePool::Create(16 << 20);
    Make(~uint64_t{0});
    std::vector<PageRow> used;
    for (int i = 0; i < 60; ++i) {
      const auto keys = Keys(Tokens(64, 1000 * i));
      const PageRow row = Row(choices[draw(4)]);
      if (draw(3) > 0) {
        std::vector<PrefixEntryId> chain;
        cache_->Append(keys, std::span(&row, 1), chain);
      }
      if (draw(3) > 0)
        Unref(row);
      else
        used.push_back(row);
    }
    struct Question {
      std::vector<PageDemand> demands;
      uint64_t charge;
      bool fits;
    };
    std::vector<Question> questions;
    for (int i = 0; i < 50; ++i) {
      Question q{{}, static_cast<uint64_t>(draw(2 << 20)), false};
      for (Width width : kAllWidths)
        if (draw(2) > 0)
          q.demands.push_back({layout_->key_page_bytes(0, width), static_cast<uint64_t>(draw(300))});
      q.fits = pool_->Fits(q.demands, q.charge, PagePool::Idle::kIsFree);
      if (pool_->Fits(q.demands, q.charge)) {
        EXPECT_TRUE(q.fits);
      }
      questions.push_back(q);
    }
    cache_->Flush();
    for (const Question& q : questions) {
      EXPECT_EQ(pool_->Fits(q.demands, q.charge), q.fits);
      ++both[q.fits];
    }
    for (const PageRow& row : used) Unref(row);
    EXPECT_EQ(pool_->used_bytes(), 0u);
  }
  EXPECT_GT(both[0], 100u);
  EXPECT_GT(both[1], 100u);
}

}  // namespace
}  // namespace stria
