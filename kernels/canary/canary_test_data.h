// Rings and queries for the canary's tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "kernels/format/page_format.h"

namespace stria::canary_test {

inline float Normal(uint64_t seed, uint64_t i) {
  return static_cast<float>(std::sqrt(-2 * std::log(Uniform(seed, 0, i) + 1e-12)) *
                            std::cos(2 * M_PI * Uniform(seed, 1, i)));
}

struct Ring {
  AttentionShape shape;
  std::vector<Half> keys;  // slots past `valid` are NaN
  std::vector<float> q;

  Ring(const AttentionShape& shape, int valid)
      : shape(shape), keys(shape.kv_heads * kPageTokens * shape.head_dim, Half{0xffff}) {
    for (int h = 0; h < shape.kv_heads; ++h) {
      for (int i = 0; i < valid * shape.head_dim; ++i) {
        keys[h * kPageTokens * shape.head_dim + i] =
            ToHalf(Normal(h, i) + 2 * Normal(50 + h, i % shape.head_dim));
      }
    }
    for (int i = 0; i < shape.heads * shape.head_dim; ++i) q.push_back(2 * Normal(99, i));
  }
};

}  // namespace stria::canary_test
