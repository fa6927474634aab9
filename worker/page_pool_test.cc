#include "worker/page_pool.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/random.h"
#include "gtest/gtest.h"

namespace stria {
namespace {

constexpr uint64_t kSlab = kSlabBytes;

std::unique_ptr<PagePool> MakePool(uint64_t bytes, bool poison = false) {
  auto pool = PagePool::Create(bytes, poison);
  EXPECT_TRUE(pool.ok());
  return *std::move(pool);
}

TEST(PagePool, RefusesLessThanASlab) {
  const auto pool = PagePool::Create(kSlab - 1);
  ASSERT_FALSE(pool.ok());
  EXPECT_NE(pool.status().message().find("2097151"), std::string::npos);
}

// Interleaved streams keep runs for themselves; still every page that arithmetic promises is handed out.
TEST(PagePool, FillsToTheLastPageAtEverySize) {
  for (size_t bytes :
       {size_t{64}, size_t{3456}, size_t{6912}, size_t{13056}, size_t{24576}, size_t{131072}, kSlabBytes}) {
    auto pool = MakePool(4 * kSlab);
    const uint64_t capacity = 4 * (kSlabBytes / bytes);
    std::vector<PageRun> streams(std::min<uint64_t>(capacity, 100));
    std::vector<PageId> pages;
    for (uint64_t i = 0;; ++i) {
      const auto id = pool->Allocate(bytes, streams[i % streams.size()]);
      if (!id) break;
      pages.push_back(*id);
    }
    EXPECT_EQ(pages.size(), capacity) << bytes;
    EXPECT_EQ(pool->used_bytes(), capacity * bytes);
    // One page back, one page more.
    PageRun other;
    pool->Unref(pages.back());
    const auto again = pool->Allocate(bytes, other);
    ASSERT_TRUE(again);
    pages.back() = *again;
    for (PageId id : pages) pool->Unref(id);
    for (PageRun& run : streams) pool->EndRun(run);
    EXPECT_EQ(pool->used_bytes(), 0u);
    EXPECT_EQ(pool->held_bytes(), 0u);
    EXPECT_EQ(pool->pages_in_use(), 0u);
  }
}

TEST(PagePool, StreamsGetNeighbours) {
  auto pool = MakePool(4 * kSlab);
  PageRun a, b;
  std::vector<PageId> pages_a, pages_b;
  for (uint32_t i = 0; i < 3 * kGrowthRun; ++i) {
    pages_a.push_back(*pool->Allocate(6912, a));
    pages_b.push_back(*pool->Allocate(6912, b));
  }
  for (const auto* pages : {&pages_a, &pages_b})
    for (uint32_t i = 0; i + 1 < pages->size(); ++i)
      if (i % kGrowthRun != kGrowthRun - 1) {
        EXPECT_EQ(pool->data((*pages)[i + 1]) - pool->data((*pages)[i]), 6912);
      }
  // A known length is one run where a slab has room for it.
  PageRun c;
  const PageId first = *pool->Allocate(6912, c, 100);
  for (uint32_t i = 1; i < 100; ++i)
    EXPECT_EQ(pool->data(*pool->Allocate(6912, c, 100 - i)) - pool->data(first), 6912 * i);
}

TEST(PagePool, ReferencesKeepAPage) {
  auto pool = MakePool(kSlab);
  PageRun run;
  const PageId id = *pool->Allocate(4096, run);
  pool->Ref(id);
  pool->Unref(id);
  EXPECT_EQ(pool->used_bytes(), 4096u);
  pool->Unref(id);
  EXPECT_EQ(pool->used_bytes(), 0u);
}

TEST(PagePool, ARunOutlivesItsSlabHarmlessly) {
  auto pool = MakePool(kSlab);
  PageRun run;
  pool->Unref(*pool->Allocate(4096, run));  // the slab goes back, the run still points at it
  PageRun other;
  const PageId large = *pool->Allocate(kSlab / 2, other);
  EXPECT_FALSE(pool->Allocate(4096, run));
  pool->EndRun(run);
  pool->Unref(large);
  EXPECT_TRUE(pool->Allocate(4096, run));
}

TEST(PagePool, ChargesShareTheBudget) {
  auto pool = MakePool(4 * kSlab);
  EXPECT_FALSE(pool->Charge(4 * kSlab + 1));
  EXPECT_TRUE(pool->Charge(3 * kSlab + 1));
  PageRun run;
  EXPECT_FALSE(pool->Allocate(64, run));  // less than a slab is left
  pool->Refund(1);
  EXPECT_TRUE(pool->Allocate(64, run));
  EXPECT_FALSE(pool->Charge(1));
  EXPECT_EQ(pool->used_bytes(), 3 * kSlab + 64);
  EXPECT_EQ(pool->held_bytes(), 4 * kSlab);
}

TEST(PagePool, PoisonsWhatIsNotWritten) {
  auto pool = MakePool(kSlab, true);
  PageRun run;
  const PageId id = *pool->Allocate(128, run), keep = *pool->Allocate(128, run);
  std::byte* data = pool->data(id);
  const auto poisoned = [&] {
    return std::all_of(data, data + 128, [](std::byte b) { return b == std::byte{0xFF}; });
  };
  EXPECT_TRUE(poisoned());
  std::memset(data, 0, 128);
  pool->Unref(id);
  EXPECT_TRUE(poisoned());
  pool->Unref(keep);
}

// Against a plain model: pages never overlap, bytes are exact, Fits says what Allocate then does.
TEST(PagePool, RandomChurn) {
  const size_t sizes[] = {3456, 6912, 13056, 24576, 98304};
  auto pool = MakePool(16 * kSlab);
  struct Sequence {
    std::vector<PageId> pages;
    PageRun runs[5];
    uint64_t charge = 0;
  };
  std::vector<std::unique_ptr<Sequence>> live;
  std::map<const std::byte*, size_t> places;  // begin → bytes
  uint64_t used = 0, refused = 0, tight = 0, draw = 0;
  const auto below = [&](uint64_t n) {
    return static_cast<uint64_t>(Uniform(7, 0, draw++) * static_cast<double>(n));
  };
  const auto end = [&](size_t at) {
    for (PageId id : live[at]->pages) {
      used -= pool->page_bytes(id);
      ASSERT_EQ(places.erase(pool->data(id)), 1u);
      pool->Unref(id);
    }
    for (PageRun& run : live[at]->runs) pool->EndRun(run);
    used -= live[at]->charge;
    pool->Refund(live[at]->charge);
    live.erase(live.begin() + at);
  };
  for (int round = 0; round < 3000; ++round) {
    if (live.size() < 30 && below(3) == 0) live.push_back(std::make_unique<Sequence>());
    if (live.empty()) continue;
    Sequence& sequence = *live[below(live.size())];
    const uint64_t charge = below(20) == 0 ? below(kSlab) : 0;
    std::vector<PageDemand> demands;
    for (size_t bytes : sizes)
      if (below(2)) demands.push_back({bytes, below(60)});
    const bool fits = pool->Fits(demands, charge);
    if (!fits) {
      ++refused;
      end(below(live.size()));
      if (HasFatalFailure()) return;
      continue;
    }
    ASSERT_TRUE(pool->Charge(charge));
    sequence.charge += charge;
    used += charge;
    std::vector<PageId> pages;
    const auto take_all = [&](Placement placement) {
      for (const PageDemand& demand : demands)
        for (uint64_t i = 0; i < demand.pages; ++i) {
          PageRun& run =
              sequence.runs[std::find(std::begin(sizes), std::end(sizes), demand.page_bytes) - sizes];
          const auto id =
              pool->Allocate(demand.page_bytes, run, static_cast<uint32_t>(demand.pages - i), placement);
          if (!id) return false;
          pages.push_back(*id);
        }
      return true;
    };
    if (!take_all(Placement::kNeighbours)) {
      ++tight;
      for (PageId id : pages) pool->Unref(id);
      pages.clear();
      ASSERT_TRUE(take_all(Placement::kGaps));  // Fits promised it
    }
    for (PageId id : pages) {
      const std::byte* data = pool->data(id);
      const size_t bytes = pool->page_bytes(id);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % kPageAlignment, 0u);
      const auto after = places.lower_bound(data);
      ASSERT_TRUE(after == places.end() || data + bytes <= after->first);
      ASSERT_TRUE(after == places.begin() || std::prev(after)->first + std::prev(after)->second <= data);
      places.emplace(data, bytes);
      sequence.pages.push_back(id);
      used += bytes;
    }
    ASSERT_EQ(pool->used_bytes(), used);
    ASSERT_LE(pool->held_bytes(), pool->capacity());
  }
  EXPECT_GT(refused, 50u);
  EXPECT_GT(tight, 0u);
  while (!live.empty()) end(0);
  EXPECT_EQ(pool->used_bytes(), 0u);
  EXPECT_EQ(pool->held_bytes(), 0u);
}

// What Fits refuses can't be had: at the border, one page more fails.
TEST(PagePool, FitsIsExact) {
  auto pool = MakePool(3 * kSlab);
  const uint64_t per_slab = kSlabBytes / 6912;
  PageRun run;
  const PageId one = *pool->Allocate(6912, run);
  const PageDemand exact[] = {{6912, 2 * per_slab - 1}, {24576, kSlabBytes / 24576}};
  const PageDemand more[] = {{6912, 2 * per_slab}, {24576, kSlabBytes / 24576}};
  EXPECT_TRUE(pool->Fits(exact, 0));
  EXPECT_FALSE(pool->Fits(exact, 1));
  EXPECT_FALSE(pool->Fits(more, 0));
  EXPECT_EQ(PagePool::Footprint(more, 5), 3 * kSlab + 5);
  pool->Unref(one);
}

}  // namespace
}  // namespace stria
