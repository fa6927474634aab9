// Zeroed memory at a 64-byte boundary, of a size fixed when it is made; large ones ask for huge pages.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
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
    constexpr size_t kHugePage = size_t{2} << 20;
    const size_t wanted = std::max<size_t>(size * sizeof(T), 1);
    const size_t alignment = wanted >= kHugePage ? kHugePage : 64;
    const size_t bytes = (wanted + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, bytes);
    STRIA_CHECK(memory != nullptr);
    if (alignment == kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);  // a hint: failing is fine
    std::memset(memory, 0, bytes);
    data_.reset(static_cast<T*>(memory));
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  size_t size_ = 0;
  std::unique_ptr<T, Free> data_;
};

}  // namespace stria
