// One thread's share of SnapKV's votes. Compiled once per target. Contract: kernels/evict/snapkv.h.
#pragma once

#include "kernels/format/page_format.h"
#include "kernels/simd/simd.h"

namespace stria {

inline constexpr int kObservationQueries = 4;  // that share each load of a key

// Queries of one KV head against some of its keys. Queries come scaled by log2(e) / √head_dim, in whole
// groups of kObservationQueries (the last padded with zeros).
struct ObservationBlock {
  int head_dim = 0;
  const float* q = nullptr;    // [queries, head_dim]
  const Half* keys = nullptr;  // [key_end, head_dim]
  int key_begin = 0, key_end = 0;
};

// The softmax of kObservationQueries queries over the block's keys: largest score (log2) and sum of 2^(score − largest).
STRIA_DECLARE_TARGETS(void, ObservationNormalisers, (const ObservationBlock& block, float* max, float* sum))

// scores[t] += Σ over `queries` of 2^(score(t) − max) · inverse, t in [key_begin, key_end).
STRIA_DECLARE_TARGETS(void, ObservationVotes,
                      (const ObservationBlock& block, int queries, const float* max, const float* inverse,
                       float* scores))

}  // namespace stria
