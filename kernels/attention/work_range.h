// Work shared by threads that start with a range each and help one another at the end.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace stria {

// A range of units that its owner takes from the front and idle threads from the back.
class alignas(64) WorkRange {
 public:
  void Reset(uint32_t begin, uint32_t end) { state_.store(Pack(begin, end), std::memory_order_relaxed); }

  // The next unit, or -1.
  int TakeFront() {
    return Take([](uint32_t begin, uint32_t end) { return std::pair(Pack(begin + 1, end), begin); });
  }
  int TakeBack() {
    return Take([](uint32_t begin, uint32_t end) { return std::pair(Pack(begin, end - 1), end - 1); });
  }

 private:
  static uint64_t Pack(uint32_t begin, uint32_t end) { return uint64_t{end} << 32 | begin; }

  template <class Step>
  int Take(Step step) {
    uint64_t state = state_.load(std::memory_order_relaxed);
    for (;;) {
      const uint32_t begin = static_cast<uint32_t>(state), end = static_cast<uint32_t>(state >> 32);
      if (begin >= end) return -1;
      const auto [after, unit] = step(begin, end);
      if (state_.compare_exchange_weak(state, after, std::memory_order_relaxed))
        return static_cast<int>(unit);
    }
  }

  std::atomic<uint64_t> state_{0};
};

}  // namespace stria
