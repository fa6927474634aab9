#include "kernels/evict/snapkv.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/evict/snapkv_kernel.h"

namespace stria {
namespace {

constexpr int kKeysPerJob = 128;

class PlannedScorer final : public ObservationScorer {
 public:
  PlannedScorer(const AttentionShape& shape, Target target, int threads)
      : shape_(shape),
        threads_(threads),
        normalisers_(STRIA_DISPATCH(target, ObservationNormalisers)),
        votes_(STRIA_DISPATCH(target, ObservationVotes)),
        row_queries_((shape.group() + kObservationQueries - 1) / kObservationQueries * kObservationQueries),
        head_queries_(row_queries_ * kObservationWindow) {
    STRIA_CHECK(shape.head_dim % 16 == 0 && shape.head_dim <= kMaxHeadDim);
    const size_t queries = size_t{1} * shape.kv_heads * head_queries_;
    q_.resize(queries * shape.head_dim);
    max_.resize(queries);
    inverse_.resize(queries);
  }

  void Add(const ObservationArgs& args, float* scores) override {
    const int rows = args.query_end - args.query_begin;
    STRIA_CHECK(rows >= 0 && rows <= kObservationWindow && args.scored <= args.query_begin);
    if (rows == 0) return;
    Scale(args, rows);
    const int row_parts = row_queries_ / kObservationQueries;
    const int parts = rows * row_parts, jobs = shape_.kv_heads * parts;
#pragma omp parallel for num_threads(threads_) schedule(dynamic)
    for (int job = 0; job < jobs; ++job) {
      const int head = job / parts, part = job % parts;
      const size_t at = size_t{1} * head * head_queries_ + size_t{1} * part * kObservationQueries;
      ObservationBlock block = BlockOf(args, head);
      block.q += size_t{1} * part * kObservationQueries * shape_.head_dim;
      block.key_end = args.query_begin + part / row_parts + 1;
      float sum[kObservationQueries];
      normalisers_(block, &max_[at], sum);
      const int heads = std::min(kObservationQueries, shape_.group() - part % row_parts * kObservationQueries);
      for (int g = 0; g < kObservationQueries; ++g)
        inverse_[at + g] = g < heads ? 1 / sum[g] : 0.0f;  // padding has no vote
    }
    const int blocks = (args.scored + kKeysPerJob - 1) / kKeysPerJob, votes = shape_.kv_heads * blocks;
#pragma omp parallel for num_threads(threads_) schedule(dynamic)
    for (int job = 0; job < votes; ++job) {
      const int head = job / blocks;
      ObservationBlock block = BlockOf(args, head);
      block.key_begin = job % blocks * kKeysPerJob;
      block.key_end = std::min(block.key_begin + kKeysPerJob, args.scored);
      const size_t at = size_t{1} * head * head_queries_;
      votes_(block, rows * row_queries_, &max_[at], &inverse_[at], scores + ptrdiff_t{1} * head * args.scored);
    }
  }

 private:
  // q_ [kv_heads, head_queries_, head_dim]: rows of one KV head together, padded to whole groups of queries.
  void Scale(const ObservationArgs& args, int rows) {
    const int dim = shape_.head_dim, group = shape_.group();
    const float scale = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(dim)));
    std::fill(q_.begin(), q_.end(), 0.0f);
    for (int head = 0; head < shape_.kv_heads; ++head) {
      for (int row = 0; row < rows; ++row) {
        const float* from = args.q + (size_t{1} * row * shape_.heads + size_t{1} * head * group) * dim;
        float* to = &q_[(size_t{1} * head * head_queries_ + size_t{1} * row * row_queries_) * dim];
        for (int i = 0; i < group * dim; ++i) to[i] = from[i] * scale;
      }
    }
  }

  ObservationBlock BlockOf(const ObservationArgs& args, int head) const {
    return {.head_dim = shape_.head_dim,
            .q = &q_[size_t{1} * head * head_queries_ * shape_.head_dim],
            .keys = args.keys.data + head * args.keys.head_stride};
  }

  const AttentionShape shape_;
  const int threads_;
  void (*const normalisers_)(const ObservationBlock&, float*, float*);
  void (*const votes_)(const ObservationBlock&, int, const float*, const float*, float*);
  const int row_queries_, head_queries_;  // of one row, of all rows, in one KV head
  std::vector<float> q_;
  std::vector<float> max_, inverse_;  // [kv_heads, head_queries_]
};

}  // namespace

std::unique_ptr<ObservationScorer> ObservationScorer::Create(const AttentionShape& shape, Target target, int threads) {
  return std::make_unique<PlannedScorer>(shape, target, threads);
}

std::vector<int32_t> SelectKeys(std::span<const float> scores, int candidates, int count) {
  const int size = static_cast<int>(scores.size());
  STRIA_CHECK(0 <= count && count <= candidates && candidates <= size);
  std::vector<float> pooled(candidates, -std::numeric_limits<float>::infinity());
  for (int t = 0; t < candidates; ++t) {
    const int begin = std::max(0, t - kPoolingKernel / 2), end = std::min(size, t + kPoolingKernel / 2 + 1);
    for (int i = begin; i < end; ++i)
      if (scores[i] > pooled[t]) pooled[t] = scores[i];  // not where it is NaN
  }
  std::vector<int32_t> order(candidates);
  for (int t = 0; t < candidates; ++t) order[t] = t;
  std::nth_element(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
    return pooled[a] != pooled[b] ? pooled[a] > pooled[b] : a < b;
  });
  order.resize(count);
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace stria
