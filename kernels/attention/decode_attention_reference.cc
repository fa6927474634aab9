#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention/decode_attention.h"
#include "kernels/format/seal.h"

namespace stria {

void DecodeAttentionReference(const AttentionShape& shape, const SequenceKv& kv, const float* q, float* out) {
  const int dim = shape.head_dim;
  const int tokens = kv.sealed_pages * kPageTokens + kv.tail;
  // Everything dequantised: [kv_heads][tokens][dim].
  std::vector<float> keys(size_t{1} * shape.kv_heads * tokens * dim), values(keys.size());
  std::vector<float> key_page(shape.kv_heads * kPageTokens * dim), value_page(key_page.size());
  for (int page = 0; page < kv.sealed_pages; ++page) {
    UnsealKeys(shape, kv.key_pages[page], key_page.data());
    UnsealValues(shape, kv.value_pages[page], value_page.data());
    for (int h = 0; h < shape.kv_heads; ++h) {
      const size_t to = (size_t{1} * h * tokens + page * kPageTokens) * dim;
      std::copy_n(&key_page[h * kPageTokens * dim], kPageTokens * dim, &keys[to]);
      std::copy_n(&value_page[h * kPageTokens * dim], kPageTokens * dim, &values[to]);
    }
  }
  for (int h = 0; h < shape.kv_heads; ++h) {
    for (int i = 0; i < kv.tail * dim; ++i) {
      const size_t to = (size_t{1} * h * tokens + kv.sealed_pages * kPageTokens) * dim + i;
      keys[to] = ToFloat(kv.key_ring[h * kPageTokens * dim + i]);
      values[to] = ToFloat(kv.value_tail[h * kPageTokens * dim + i]);
    }
  }

  std::vector<double> p(tokens);
  for (int head = 0; head < shape.heads; ++head) {
    const size_t base = size_t{1} * (head / shape.group()) * tokens * dim;
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int t = 0; t < tokens; ++t) {
      double dot = 0;
      for (int c = 0; c < dim; ++c) dot += double{q[head * dim + c]} * keys[base + size_t{1} * t * dim + c];
      p[t] = dot / std::sqrt(static_cast<double>(dim));
      max = std::max(max, p[t]);
    }
    for (double& x : p) sum += x = std::exp(x - max);
    for (int c = 0; c < dim; ++c) {
      double x = 0;
      for (int t = 0; t < tokens; ++t) x += p[t] * values[base + size_t{1} * t * dim + c];
      out[head * dim + c] = static_cast<float>(x / sum);
    }
  }
}

}  // namespace stria
