// Zeroed memory at a 64-byte boundary, of a size fixed when it is made, resident from the start. Large ones are
// mapped, in huge pages where possible, and go back to the system with the buffer, which malloc does not promise.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/check.h"

namespace stria {

template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t size) : size_(size) {
    const size_t bytes = (std::max<size_t>(size * sizeof(T), 1) + 63) / 64 * 64;
    void* const memory = bytes < kMapped ? std::aligned_alloc(64, bytes) : Map(bytes);
    STRIA_CHECK(memory != nullptr);
    std::memset(memory, 0, bytes);
    data_ = std::unique_ptr<T, Free>(static_cast<T*>(memory), Free{bytes});
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  static constexpr size_t kMapped = size_t{128} << 10;
  static constexpr size_t kPage = 4096;
  static constexpr size_t kHugePage = size_t{2} << 20;

  struct Free {
    size_t bytes = 0;
    void operator()(T* memory) const {
      if (bytes < kMapped) {
        std::free(memory);
      } else {
        munmap(memory, bytes);
      }
    }
  };

  // From the size of a huge page on, buffers begin at the border of one; what is mapped around them goes back.
  static void* Map(size_t bytes) {
    const size_t pages = (bytes + kPage - 1) / kPage * kPage;
    const size_t mapped = pages + (bytes < kHugePage ? 0 : kHugePage);
    void* const memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    STRIA_CHECK(memory != MAP_FAILED);
    if (bytes < kHugePage) return memory;
    auto* const first = static_cast<std::byte*>(memory);
    std::byte* const begin = first + -reinterpret_cast<uintptr_t>(first) % kHugePage;
    std::byte* const end = begin + pages;
    if (begin > first) munmap(first, begin - first);
    if (end < first + mapped) munmap(end, first + mapped - end);
    madvise(begin, pages, MADV_HUGEPAGE);  // a hint: failing is fine
    return begin;
  }

  size_t size_ = 0;
  std::unique_ptr<T, Free> data_;
};

}  // namespace stria
