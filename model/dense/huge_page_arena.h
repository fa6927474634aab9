// Many arrays smaller than a huge page, cut from memory that lies in huge pages: weights are read from end to
// end once per step, and with small pages the processor walks page tables and stops prefetching every 4 KiB.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"

namespace stria {

class HugePageArena {
 public:
  // Zeroed, at a 64-byte boundary; lives as long as the arena.
  template <typename T>
  std::span<T> Take(size_t count) {
    const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    return {reinterpret_cast<T*>(TakeBytes(bytes)), count};
  }

 private:
  static constexpr size_t kBlockBytes = size_t{16} << 20;

  struct Block {
    AlignedBuffer<std::byte> memory;
    size_t used = 0;
  };

  // From the first block with enough room, so that small arrays fill what large ones leave.
  std::byte* TakeBytes(size_t bytes) {
    for (Block& block : blocks_) {
      if (block.memory.size() - block.used >= bytes) return TakeFrom(block, bytes);
    }
    const bool large = bytes > kBlockBytes / 2;
    blocks_.push_back({AlignedBuffer<std::byte>(large ? bytes : kBlockBytes)});
    return TakeFrom(blocks_.back(), bytes);
  }
  static std::byte* TakeFrom(Block& block, size_t bytes) {
    std::byte* const at = block.memory.data() + block.used;
    block.used += bytes;
    return at;
  }

  std::vector<Block> blocks_;
};

}  // namespace stria
