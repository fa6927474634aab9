// The memory of all caches: one arena cut into slabs, slabs cut into pages of one size at a time.
//
// Any multiple of 64 bytes is a page size, so widths and latent sizes mix; a slab goes back to the arena when
// its last page does, so no mixture fragments for good. Pages of one stream (the keys, or the values, of one
// layer of one sequence) are handed out in runs of neighbours, because kernels read scattered pages a third
// slower. A run's unused rest is only a preference: when nothing else is left, it is given to whoever asks,
// so the pool fills to its last page.
//
// Memory that is not pages (prefill staging) is charged against the same budget. Not thread-safe: the
// engine's thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace stria {

using PageId = uint32_t;  // names a page, not a place: memory behind an id may move between two steps

inline constexpr size_t kSlabBytes = size_t{2} << 20;
inline constexpr size_t kPageAlignment = 64;
inline constexpr uint32_t kGrowthRun = 4;  // neighbours kept for a stream that grows page by page

// The place that the next pages of one stream should take.
struct PageRun {
  static constexpr uint32_t kNone = ~uint32_t{0};
  uint32_t slab = kNone;
  uint32_t generation = 0;  // of the slab, when the run was cut
  uint32_t next = 0, end = 0;
};

// What matters more when a run ends: neighbours, even if that opens a fresh slab while others have gaps; or
// not to open one. What Fits promised is certain to be had only with kGaps.
enum class Placement { kNeighbours, kGaps };

// So many pages of one size.
struct PageDemand {
  size_t page_bytes = 0;
  uint64_t pages = 0;
};

class PagePool {
 public:
  // `poison`: fill memory with 0xFF (NaN, in any float) whenever it is not written yet or no more: for tests.
  static absl::StatusOr<std::unique_ptr<PagePool>> Create(uint64_t bytes, bool poison = false);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // A page with one reference, or nothing when the pool is full. `expected`: pages that the stream will ask
  // for soon, this one included; they get neighbouring places where possible.
  std::optional<PageId> Allocate(size_t page_bytes, PageRun& run, uint32_t expected = kGrowthRun,
                                 Placement placement = Placement::kNeighbours);
  // References count who uses a page. Ref: true if it is the only one now. Unref: true if none is left; the
  // page then returns, unless it is kept.
  bool Ref(PageId id);
  bool Unref(PageId id);
  // A kept page stays when nobody uses it: it is idle then, until somebody does or it is let go. One may keep
  // pages: the prefix cache.
  void Keep(PageId id);
  void LetGo(PageId id);
  bool idle(PageId id) const { return pages_[id].refs == 0; }
  void EndRun(PageRun& run);  // gives up the unused rest

  std::byte* data(PageId id) const {
    return arena_ + pages_[id].slab * kSlabBytes + pages_[id].slot * page_bytes(id);
  }
  size_t page_bytes(PageId id) const { return classes_[slabs_[pages_[id].slab].size_class].page_bytes; }

  // Counts memory that lives elsewhere. False: there is no room, nothing changed.
  bool Charge(uint64_t bytes);
  void Refund(uint64_t bytes);

  // Whether all of this could be allocated now, or once every idle page is let go. Each size appears once.
  enum class Idle { kIsUsed, kIsFree };
  bool Fits(std::span<const PageDemand> demands, uint64_t charge, Idle idle = Idle::kIsUsed) const;
  // Bytes of pool that it would take if nothing else were there: whole slabs, and the charge.
  static uint64_t Footprint(std::span<const PageDemand> demands, uint64_t charge);

  uint64_t capacity() const { return capacity_; }
  uint64_t used_bytes() const { return page_bytes_used_ + charged_; }  // pages and charges, to the byte
  uint64_t charged_bytes() const { return charged_; }
  uint64_t idle_bytes() const { return idle_bytes_; }  // of the used ones
  uint64_t held_bytes() const { return slabs_in_use_ * kSlabBytes + charged_; }  // the same in whole slabs
  uint64_t pages_in_use() const { return pages_.size() - free_ids_.size(); }

 private:
  struct Page {
    uint32_t slab = 0, slot = 0, refs = 0;
    bool kept = false;
  };
  // Slabs of one class: some place neither used nor kept for a run | only kept places left. Full slabs are in
  // no list.
  enum ListKind : uint8_t { kOpen, kKept, kLists, kNoList = kLists };
  struct SizeClass {
    size_t page_bytes = 0;
    uint32_t per_slab = 0;
    uint64_t slabs = 0, used = 0;
    uint64_t idle = 0, idle_slabs = 0;  // pages; slabs whose pages are all idle
    std::vector<uint32_t> lists[kLists] = {};
  };
  struct Slab {
    uint32_t size_class = 0, generation = 0;
    uint32_t used = 0, open = 0, idle = 0;
    ListKind list = kNoList;
    uint32_t list_index = 0;
    std::vector<uint64_t> used_bits, kept_bits;
  };
  struct Gap {
    uint32_t begin = 0, length = 0;
  };

  PagePool(std::byte* arena, uint64_t capacity, uint64_t slabs, bool poison);
  uint32_t FindClass(size_t page_bytes) const;
  uint32_t ClassOf(size_t page_bytes);
  uint64_t FreeSlabs() const { return (capacity_ - charged_) / kSlabBytes - slabs_in_use_; }
  uint32_t TakeSlab(uint32_t size_class);
  void ReturnSlab(uint32_t index);
  void Relist(uint32_t index);
  bool CutRun(uint32_t size_class, uint32_t want, Placement placement, PageRun& run);
  Gap LongestGap(const Slab& slab, uint32_t per_slab, uint32_t enough) const;
  PageId Use(PageRun& run);
  void Count(uint32_t slab, int used, int idle);  // changes the numbers of both
  void Return(PageId id);

  std::byte* arena_;
  uint64_t capacity_;
  bool poison_;
  uint64_t charged_ = 0, page_bytes_used_ = 0, idle_bytes_ = 0, slabs_in_use_ = 0;
  std::vector<SizeClass> classes_;
  std::vector<Slab> slabs_;
  std::vector<uint32_t> free_resident_, free_untouched_;
  std::vector<Page> pages_;
  std::vector<PageId> free_ids_;
};

}  // namespace stria
