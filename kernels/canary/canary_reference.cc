#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/canary/canary.h"
#include "kernels/format/quantizer.h"

namespace stria {
namespace {

// log softmax(q Kᵀ / √dim) over `valid` keys.
std::vector<double> LogSoftmax(const float* q, const std::vector<float>& keys, int valid, int dim) {
  std::vector<double> x(valid);
  for (int t = 0; t < valid; ++t) {
    for (int c = 0; c < dim; ++c) x[t] += double{q[c]} * keys[t * dim + c];
    x[t] /= std::sqrt(static_cast<double>(dim));
  }
  const double max = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double v : x) sum += std::exp(v - max);
  for (double& v : x) v -= max + std::log(sum);
  return x;
}

}  // namespace

void CanaryReadingReference(const AttentionShape& shape, const Half* key_ring, int valid, const float* q,
                            double* out) {
  STRIA_CHECK(valid >= kCanaryMinKeys && valid <= kPageTokens);
  const int dim = shape.head_dim;
  std::fill_n(out, kCanaryWidths, 0.0);
  std::vector<float> keys(valid * dim), quantised(valid * dim);
  for (int h = 0; h < shape.kv_heads; ++h) {
    for (int i = 0; i < valid * dim; ++i) keys[i] = ToFloat(key_ring[h * kPageTokens * dim + i]);
    for (int w = 0; w < kCanaryWidths; ++w) {
      for (int c = 0; c < dim; ++c) {
        float min = keys[c], max = keys[c];
        bool finite = true;
        for (int t = 0; t < valid; ++t) {
          finite &= std::isfinite(keys[t * dim + c]);
          min = std::min(min, keys[t * dim + c]);
          max = std::max(max, keys[t * dim + c]);
        }
        const Quantizer quantizer = Quantizer::ForRange(min, max, finite, 2 << w);
        for (int t = 0; t < valid; ++t)
          quantised[t * dim + c] = quantizer.Value(quantizer.Code(keys[t * dim + c]));
      }
      for (int head = h * shape.group(); head < (h + 1) * shape.group(); ++head) {
        const auto p = LogSoftmax(q + head * dim, keys, valid, dim);
        const auto approximate = LogSoftmax(q + head * dim, quantised, valid, dim);
        double kl = 0;
        for (int t = 0; t < valid; ++t) kl += std::exp(p[t]) * (p[t] - approximate[t]);
        out[w] += kl / shape.heads;
      }
    }
  }
}

}  // namespace stria
