// So many pages of each size, and so many bytes beside them: what sequences ask of a worker's pool. Demands add up exactly,
// because the pool cuts each 2 MiB slab into pages of one size (and rings are pages too): what counts is whole slabs.
#pragma once

#include <cstdint>
#include <map>

#include "base/check.h"

namespace stria {

inline constexpr uint64_t kPoolSlabBytes = uint64_t{2} << 20;

class MemoryDemand {
 public:
  void AddPages(uint32_t page_bytes, uint64_t pages) {
    if (page_bytes > 0 && pages > 0) pages_[page_bytes] += pages;
  }
  void AddBytes(uint64_t bytes) { bytes_ += bytes; }

  MemoryDemand& operator+=(const MemoryDemand& other) {
    for (const auto& [page_bytes, pages] : other.pages_) pages_[page_bytes] += pages;
    bytes_ += other.bytes_;
    return *this;
  }
  // Takes back what was added.
  MemoryDemand& operator-=(const MemoryDemand& other) {
    for (const auto& [page_bytes, pages] : other.pages_) {
      const auto it = pages_.find(page_bytes);
      STRIA_CHECK(it != pages_.end() && it->second >= pages);
      if ((it->second -= pages) == 0) pages_.erase(it);
    }
    STRIA_CHECK(bytes_ >= other.bytes_);
    bytes_ -= other.bytes_;
    return *this;
  }
  friend MemoryDemand operator+(MemoryDemand a, const MemoryDemand& b) { return a += b; }

  // Bytes of pool that it takes: whole slabs of each page size, and the bytes beside them. A page larger than a slab takes
  // whole slabs of its own.
  uint64_t Footprint() const {
    uint64_t bytes = bytes_;
    for (const auto& [page_bytes, pages] : pages_) {
      const uint64_t per_slab = kPoolSlabBytes / page_bytes;
      bytes += per_slab > 0 ? (pages + per_slab - 1) / per_slab * kPoolSlabBytes
                            : pages * ((page_bytes + kPoolSlabBytes - 1) / kPoolSlabBytes) * kPoolSlabBytes;
    }
    return bytes;
  }

  // The same without rounding to slabs.
  uint64_t Bytes() const {
    uint64_t bytes = bytes_;
    for (const auto& [page_bytes, pages] : pages_) bytes += page_bytes * pages;
    return bytes;
  }

  friend bool operator==(const MemoryDemand&, const MemoryDemand&) = default;

 private:
  std::map<uint32_t, uint64_t> pages_;
  uint64_t bytes_ = 0;
};

}  // namespace stria
