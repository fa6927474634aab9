// Tokens and pages for the tests of sealing.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/random.h"
#include "kernels/format/page_format.h"

namespace stria::seal_test {

inline const AttentionShape kShapes[] = {{1, 1, 16}, {9, 3, 64}, {2, 1, 80}, {4, 2, 128}, {1, 1, 256}};

inline float Number(uint64_t seed, uint64_t i) {
  return static_cast<float>(std::sqrt(-2 * std::log(Uniform(seed, 0, i) + 1e-12)) *
                            std::cos(2 * M_PI * Uniform(seed, 1, i)));
}

// 64 tokens of all heads inside a longer staging whose other tokens are NaN.
struct Block {
  static constexpr int kCapacity = 100;
  std::vector<Half> data;
  AttentionShape shape;

  Block(const AttentionShape& shape, const std::function<float(int head, int token, int channel)>& number)
      : data(size_t{1} * shape.kv_heads * kCapacity * shape.head_dim, Half{0xffff}), shape(shape) {
    for (int h = 0; h < shape.kv_heads; ++h) {
      for (int t = 0; t < kPageTokens; ++t) {
        for (int c = 0; c < shape.head_dim; ++c) at(h, t, c) = ToHalf(number(h, t, c));
      }
    }
  }
  Half& at(int h, int t, int c) { return data[(h * kCapacity + t) * shape.head_dim + c]; }
  KvBlock View() const { return {data.data(), ptrdiff_t{1} * kCapacity * shape.head_dim}; }
};

inline Block NormalBlock(const AttentionShape& shape) {
  return Block(shape, [&](int h, int t, int c) { return Number(h + 1, t * shape.head_dim + c) + c % 7; });
}

struct Page {
  size_t bytes;
  std::unique_ptr<uint8_t, decltype(&std::free)> data;
  explicit Page(size_t bytes)
      : bytes(bytes), data(static_cast<uint8_t*>(std::aligned_alloc(64, bytes + 64)), &std::free) {
    std::memset(data.get(), 0xab, bytes + 64);
  }
  bool operator==(const Page& other) const { return std::memcmp(data.get(), other.data.get(), bytes) == 0; }
  bool NothingBehind() const {
    for (int i = 0; i < 64; ++i) {
      if (data.get()[bytes + i] != 0xab) return false;
    }
    return true;
  }
};

}  // namespace stria::seal_test
