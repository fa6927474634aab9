#include "model/transformer/plain_cache.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/float16.h"

namespace stria {
namespace {

float Dot(const float* a, const float* b, int n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// out [dim] = softmax(q · keysᵀ / √dim) · values over the first `tokens`.
void Attend(const float* q, const float* keys, const float* values, int tokens, int dim, float* out) {
  std::vector<float> weights(tokens);
  float best = -INFINITY;
  for (int t = 0; t < tokens; ++t) {
    weights[t] = Dot(q, keys + static_cast<size_t>(t) * dim, dim) / std::sqrt(static_cast<float>(dim));
    best = std::max(best, weights[t]);
  }
  double total = 0;
  for (float& weight : weights) total += weight = std::exp(weight - best);
  std::fill_n(out, dim, 0.0f);
  for (int t = 0; t < tokens; ++t) {
    const float weight = static_cast<float>(weights[t] / total);
    for (int i = 0; i < dim; ++i) out[i] += weight * values[static_cast<size_t>(t) * dim + i];
  }
}

}  // namespace

PlainCache::PlainCache(const ModelConfig& config, int sequences, Storage storage)
    : config_(config),
      sequences_(sequences),
      storage_(storage),
      heads_(static_cast<size_t>(config.layers) * sequences * config.kv_heads) {}

void PlainCache::Append(const float* from, std::vector<float>& to) const {
  for (int i = 0; i < config_.head_dim; ++i) {
    to.push_back(storage_ == Storage::kFp16 ? ToFloat(ToHalf(from[i])) : from[i]);
  }
}

void PlainCache::AppendAndAttend(int layer, const AttentionRows& rows) {
  STRIA_CHECK(rows.rows == static_cast<int>(sequence_of_row_.size()));
  const int dim = config_.head_dim;
  std::vector<int> visible(rows.rows);
  for (int row = 0; row < rows.rows; ++row) {
    for (int head = 0; head < config_.kv_heads; ++head) {
      Head& at = At(layer, sequence_of_row_[row], head);
      const size_t offset = (static_cast<size_t>(row) * config_.kv_heads + head) * dim;
      Append(rows.k + offset, at.keys);
      Append(rows.v + offset, at.values);
      visible[row] = static_cast<int>(at.keys.size()) / dim;
    }
  }
#pragma omp parallel for schedule(dynamic)
  for (int task = 0; task < rows.rows * config_.heads; ++task) {
    const int row = task / config_.heads, head = task % config_.heads;
    const Head& at = At(layer, sequence_of_row_[row], head / config_.group());
    Attend(rows.q + static_cast<size_t>(task) * dim, at.keys.data(), at.values.data(), visible[row], dim,
           rows.out + static_cast<size_t>(task) * dim);
  }
}

}  // namespace stria
