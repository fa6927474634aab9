// Staged prompts for the tests of prefill attention.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "kernels/attention/prefill_attention.h"

namespace stria::prefill_test {

inline const AttentionShape kShapes[] = {{1, 1, 16}, {6, 2, 64}, {4, 1, 80}, {7, 1, 128}, {16, 1, 48}, {2, 2, 256}};

inline float Normal(uint64_t seed, uint64_t i) {
  return static_cast<float>(std::sqrt(-2 * std::log(Uniform(seed, 0, i) + 1e-12)) *
                            std::cos(2 * M_PI * Uniform(seed, 1, i)));
}

// A staged prompt. Behind its `tokens` tokens the staging holds NaN, as unwritten memory may.
struct Prompt {
  AttentionShape shape;
  int tokens;
  int capacity;
  std::vector<Half> keys, values;
  std::vector<float> q;

  Prompt(const AttentionShape& shape, int tokens, float key_bias)
      : shape(shape),
        tokens(tokens),
        capacity(tokens + 70),
        keys(size_t{1} * shape.kv_heads * capacity * shape.head_dim, Half{0xffff}),
        values(keys.size(), Half{0xffff}),
        q(size_t{1} * tokens * shape.heads * shape.head_dim) {
    const int dim = shape.head_dim;
    for (int h = 0; h < shape.kv_heads; ++h) {
      for (int i = 0; i < tokens * dim; ++i) {
        const float bias = i % dim % 16 == 3 ? key_bias : 0;
        keys[h * capacity * dim + i] = ToHalf(Normal(1 + h, i) + bias);
        values[h * capacity * dim + i] = ToHalf(Normal(100 + h, i));
      }
    }
    for (size_t i = 0; i < q.size(); ++i) q[i] = 1.5f * Normal(1000, i);
  }

  PrefillAttentionArgs Args(int begin, int end, float* out) const {
    const ptrdiff_t stride = ptrdiff_t{1} * capacity * shape.head_dim;
    const size_t at = size_t{1} * begin * shape.heads * shape.head_dim;
    return {begin, end, q.data() + at, {keys.data(), stride}, {values.data(), stride}, out + at};
  }

  std::vector<float> Reference() const {
    std::vector<float> out(q.size());
    PrefillAttentionReference(shape, Args(0, tokens, out.data()));
    return out;
  }
};

// |a − b| / |b|, both as one vector.
inline double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace stria::prefill_test
