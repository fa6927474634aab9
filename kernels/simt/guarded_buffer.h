// Memory whose end is the end of the mapping: a read or write past it faults, also without a sanitizer.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <vector>

#include "base/check.h"

namespace stria::simt {

// Elements are zero at first. Starts are aligned to `alignment`, so up to alignment - 1 bytes behind the end may be spared.
template <class T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t size, size_t alignment = 16) : size_(size) {
    constexpr size_t kPage = 4096;
    const size_t bytes = (size * sizeof(T) + alignment - 1) / alignment * alignment;
    mapped_ = (bytes + kPage - 1) / kPage * kPage + 2 * kPage;
    memory_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    STRIA_CHECK(memory_ != MAP_FAILED);
    STRIA_CHECK(mprotect(memory_, kPage, PROT_NONE) == 0);
    STRIA_CHECK(mprotect(memory_ + mapped_ - kPage, kPage, PROT_NONE) == 0);
    data_ = reinterpret_cast<T*>(memory_ + mapped_ - kPage - bytes);
  }
  explicit GuardedBuffer(const std::vector<T>& from) : GuardedBuffer(from.size()) {
    for (size_t i = 0; i < size_; ++i) data_[i] = from[i];
  }
  ~GuardedBuffer() { munmap(memory_, mapped_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  size_t size_, mapped_;
  char* memory_;
  T* data_;
};

}  // namespace stria::simt
