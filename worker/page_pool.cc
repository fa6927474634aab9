#include "worker/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace stria {
namespace {

constexpr uint32_t kGoodRun = 16;  // neighbours beyond which a longer run reads no faster
constexpr size_t kSlabsTried = 4;  // slabs searched for a run before a fresh one is taken
constexpr int kPoison = 0xFF;
constexpr uint32_t kNoClass = ~uint32_t{0};

bool Bit(const std::vector<uint64_t>& bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }
void SetBit(std::vector<uint64_t>& bits, uint32_t i) { bits[i / 64] |= uint64_t{1} << (i % 64); }
void ClearBit(std::vector<uint64_t>& bits, uint32_t i) { bits[i / 64] &= ~(uint64_t{1} << (i % 64)); }

}  // namespace

absl::StatusOr<std::unique_ptr<PagePool>> PagePool::Create(uint64_t bytes, bool poison) {
  const uint64_t slabs = bytes / kSlabBytes;
  if (slabs == 0 || slabs > uint64_t{1} << 31)
    return absl::InvalidArgumentError(
        absl::StrCat("a cache pool of ", bytes, " bytes: it takes at least ", kSlabBytes));
  // One slab more than needed, so that the first slab can start at a huge-page border.
  const size_t mapped = (slabs + 1) * kSlabBytes;
  void* memory =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map a cache pool of ", bytes, " bytes: ", std::strerror(errno)));
  auto* begin = static_cast<std::byte*>(memory);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kSlabBytes;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + slabs * kSlabBytes, kSlabBytes - before);
  std::byte* arena = begin + before;
  madvise(arena, slabs * kSlabBytes, MADV_HUGEPAGE);  // a hint: small pages work too
  return std::unique_ptr<PagePool>(new PagePool(arena, bytes, slabs, poison));
}

PagePool::PagePool(std::byte* arena, uint64_t capacity, uint64_t slabs, bool poison)
    : arena_(arena), capacity_(capacity), poison_(poison), slabs_(slabs) {
  free_untouched_.reserve(slabs);
  free_resident_.reserve(slabs);
  for (uint32_t i = static_cast<uint32_t>(slabs); i-- > 0;) free_untouched_.push_back(i);
}

PagePool::~PagePool() { munmap(arena_, slabs_.size() * kSlabBytes); }

uint32_t PagePool::FindClass(size_t page_bytes) const {
  for (uint32_t i = 0; i < classes_.size(); ++i)  // a handful: widths times keys or values
    if (classes_[i].page_bytes == page_bytes) return i;
  return kNoClass;
}

uint32_t PagePool::ClassOf(size_t page_bytes) {
  const uint32_t known = FindClass(page_bytes);
  if (known != kNoClass) return known;
  STRIA_CHECK(page_bytes > 0 && page_bytes % kPageAlignment == 0 && page_bytes <= kSlabBytes);
  classes_.push_back({.page_bytes = page_bytes, .per_slab = static_cast<uint32_t>(kSlabBytes / page_bytes)});
  return static_cast<uint32_t>(classes_.size() - 1);
}

std::optional<PageId> PagePool::Allocate(size_t page_bytes, PageRun& run, uint32_t expected,
                                         Placement placement) {
  const uint32_t size_class = ClassOf(page_bytes);
  const bool usable = run.slab != PageRun::kNone && run.next < run.end &&
                      slabs_[run.slab].generation == run.generation &&
                      slabs_[run.slab].size_class == size_class && !Bit(slabs_[run.slab].used_bits, run.next);
  if (!usable) {
    EndRun(run);
    if (!CutRun(size_class, std::max<uint32_t>(expected, 1), placement, run)) return std::nullopt;
  }
  return Use(run);
}

PageId PagePool::Use(PageRun& run) {
  Slab& slab = slabs_[run.slab];
  const uint32_t slot = run.next++;
  if (Bit(slab.kept_bits, slot))
    ClearBit(slab.kept_bits, slot);
  else
    --slab.open;
  SetBit(slab.used_bits, slot);
  Count(run.slab, 1, 0);
  Relist(run.slab);
  if (free_ids_.empty()) {
    free_ids_.push_back(static_cast<PageId>(pages_.size()));
    pages_.emplace_back();
  }
  const PageId id = free_ids_.back();
  free_ids_.pop_back();
  pages_[id] = {.slab = run.slab, .slot = slot, .refs = 1};
  return id;
}

void PagePool::Count(uint32_t slab_index, int used, int idle) {
  Slab& slab = slabs_[slab_index];
  SizeClass& size_class = classes_[slab.size_class];
  const auto all_idle = [&] { return slab.used > 0 && slab.used == slab.idle; };
  const bool before = all_idle();
  slab.used += used;
  slab.idle += idle;
  size_class.used += used;
  size_class.idle += idle;
  size_class.idle_slabs += int{all_idle()} - int{before};
  page_bytes_used_ += used * static_cast<int64_t>(size_class.page_bytes);
  idle_bytes_ += idle * static_cast<int64_t>(size_class.page_bytes);
}

bool PagePool::Ref(PageId id) {
  Page& page = pages_[id];
  STRIA_CHECK(page.refs > 0 || page.kept);
  if (page.refs == 0) Count(page.slab, 0, -1);
  return ++page.refs == 1;
}

bool PagePool::Unref(PageId id) {
  Page& page = pages_[id];
  STRIA_CHECK(page.refs > 0);
  if (--page.refs > 0) return false;
  if (page.kept)
    Count(page.slab, 0, 1);
  else
    Return(id);
  return true;
}

void PagePool::Keep(PageId id) {
  STRIA_CHECK(pages_[id].refs > 0 && !pages_[id].kept);
  pages_[id].kept = true;
}

void PagePool::LetGo(PageId id) {
  Page& page = pages_[id];
  STRIA_CHECK(page.kept);
  page.kept = false;
  if (page.refs > 0) return;
  Count(page.slab, 0, -1);
  Return(id);
}

void PagePool::Return(PageId id) {
  const Page& page = pages_[id];
  if (poison_) std::memset(data(id), kPoison, page_bytes(id));
  Slab& slab = slabs_[page.slab];
  ClearBit(slab.used_bits, page.slot);
  ++slab.open;
  Count(page.slab, -1, 0);
  free_ids_.push_back(id);
  if (slab.used == 0)
    ReturnSlab(page.slab);
  else
    Relist(page.slab);
}

void PagePool::EndRun(PageRun& run) {
  if (run.slab != PageRun::kNone && slabs_[run.slab].generation == run.generation) {
    Slab& slab = slabs_[run.slab];
    for (uint32_t slot = run.next; slot < run.end; ++slot) {
      if (!Bit(slab.kept_bits, slot)) continue;
      ClearBit(slab.kept_bits, slot);
      ++slab.open;
    }
    Relist(run.slab);
  }
  run = PageRun();
}

bool PagePool::CutRun(uint32_t class_index, uint32_t want, Placement placement, PageRun& run) {
  SizeClass& size_class = classes_[class_index];
  want = std::min(want, size_class.per_slab);
  const uint32_t good = std::min(want, kGoodRun);
  Gap best;
  uint32_t chosen = PageRun::kNone;
  const auto& open = size_class.lists[kOpen];
  for (size_t i = 0; i < std::min(open.size(), kSlabsTried) && best.length < good; ++i) {
    const uint32_t index = open[open.size() - 1 - i];
    const Gap gap = LongestGap(slabs_[index], size_class.per_slab, want);
    if (gap.length > best.length) best = gap, chosen = index;
  }
  const bool has_gap = best.length > 0 || !size_class.lists[kKept].empty();
  if (best.length < good && FreeSlabs() > 0 && (placement == Placement::kNeighbours || !has_gap)) {
    chosen = TakeSlab(class_index);
    best = {.begin = 0, .length = size_class.per_slab};
  }
  if (chosen == PageRun::kNone) {  // only places kept for other streams are left: take one
    const auto& kept = size_class.lists[kKept];
    if (kept.empty()) return false;
    chosen = kept.back();
    uint32_t slot = 0;
    while (Bit(slabs_[chosen].used_bits, slot)) ++slot;
    run = {.slab = chosen, .generation = slabs_[chosen].generation, .next = slot, .end = slot + 1};
    return true;
  }
  Slab& slab = slabs_[chosen];
  const uint32_t length = std::min(best.length, want);
  for (uint32_t slot = best.begin; slot < best.begin + length; ++slot) SetBit(slab.kept_bits, slot);
  slab.open -= length;
  Relist(chosen);
  run = {.slab = chosen, .generation = slab.generation, .next = best.begin, .end = best.begin + length};
  return true;
}

PagePool::Gap PagePool::LongestGap(const Slab& slab, uint32_t per_slab, uint32_t enough) const {
  Gap best, current;
  for (uint32_t slot = 0; slot < per_slab; ++slot) {
    const uint64_t taken = slab.used_bits[slot / 64] | slab.kept_bits[slot / 64];
    if (slot % 64 == 0 && taken == ~uint64_t{0}) {
      slot += 63;
      current = Gap();
      continue;
    }
    if (taken >> (slot % 64) & 1) {
      current = Gap();
      continue;
    }
    if (current.length == 0) current.begin = slot;
    ++current.length;
    if (current.length > best.length) best = current;
    if (best.length >= enough) break;
  }
  return best;
}

uint32_t PagePool::TakeSlab(uint32_t class_index) {
  auto& from = free_resident_.empty() ? free_untouched_ : free_resident_;
  const uint32_t index = from.back();
  from.pop_back();
  ++slabs_in_use_;
  SizeClass& size_class = classes_[class_index];
  ++size_class.slabs;
  Slab& slab = slabs_[index];
  slab.size_class = class_index;
  slab.used = slab.idle = 0;
  slab.open = size_class.per_slab;
  const size_t words = (size_class.per_slab + 63) / 64;
  slab.used_bits.assign(words, 0);
  slab.kept_bits.assign(words, 0);
  if (poison_) std::memset(arena_ + index * kSlabBytes, kPoison, kSlabBytes);
  Relist(index);
  return index;
}

void PagePool::ReturnSlab(uint32_t index) {
  Slab& slab = slabs_[index];
  slab.open = 0;
  slab.kept_bits.assign(slab.kept_bits.size(), 0);
  Relist(index);
  ++slab.generation;  // runs that still point here are void
  --classes_[slab.size_class].slabs;
  --slabs_in_use_;
  free_resident_.push_back(index);
}

void PagePool::Relist(uint32_t index) {
  Slab& slab = slabs_[index];
  SizeClass& size_class = classes_[slab.size_class];
  const bool full = slab.used == size_class.per_slab || slab.used == 0;
  // An unused slab is listed only while a run is being cut from it (open > 0).
  const ListKind want = slab.open > 0 ? kOpen : full ? kNoList : kKept;
  if (want == slab.list) return;
  if (slab.list != kNoList) {
    auto& list = size_class.lists[slab.list];
    list[slab.list_index] = list.back();
    slabs_[list.back()].list_index = slab.list_index;
    list.pop_back();
  }
  slab.list = want;
  if (want == kNoList) return;
  slab.list_index = static_cast<uint32_t>(size_class.lists[want].size());
  size_class.lists[want].push_back(index);
}

bool PagePool::Charge(uint64_t bytes) {
  if (bytes > capacity_ - held_bytes()) return false;
  charged_ += bytes;
  // Empty slabs that were written once still hold memory: hand it back, so that the whole stays within the
  // budget.
  while (!free_resident_.empty() &&
         (slabs_in_use_ + free_resident_.size()) * kSlabBytes + charged_ > capacity_) {
    const uint32_t index = free_resident_.back();
    free_resident_.pop_back();
    madvise(arena_ + index * kSlabBytes, kSlabBytes, MADV_DONTNEED);
    free_untouched_.push_back(index);
  }
  return true;
}

void PagePool::Refund(uint64_t bytes) {
  STRIA_CHECK(bytes <= charged_);
  charged_ -= bytes;
}

bool PagePool::Fits(std::span<const PageDemand> demands, uint64_t charge, Idle idle) const {
  const bool reclaim = idle == Idle::kIsFree;
  uint64_t needed = charge, room = capacity_ - held_bytes();
  if (reclaim)
    for (const SizeClass& size_class : classes_) room += size_class.idle_slabs * kSlabBytes;
  for (const PageDemand& demand : demands) {
    const uint32_t index = FindClass(demand.page_bytes);
    uint64_t free_places = 0;  // in slabs that stay with this size
    if (index != kNoClass) {
      const SizeClass& c = classes_[index];
      free_places = reclaim ? (c.slabs - c.idle_slabs) * c.per_slab - (c.used - c.idle)
                            : c.slabs * c.per_slab - c.used;
    }
    if (demand.pages <= free_places) continue;
    const uint64_t per_slab = kSlabBytes / demand.page_bytes;
    needed += (demand.pages - free_places + per_slab - 1) / per_slab * kSlabBytes;
  }
  return needed <= room;
}

uint64_t PagePool::Footprint(std::span<const PageDemand> demands, uint64_t charge) {
  uint64_t needed = charge;
  for (const PageDemand& demand : demands) {
    const uint64_t per_slab = kSlabBytes / demand.page_bytes;
    needed += (demand.pages + per_slab - 1) / per_slab * kSlabBytes;
  }
  return needed;
}

}  // namespace stria
