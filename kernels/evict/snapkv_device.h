// SnapKV's votes on a GPU: what a launch is told. Contract: snapkv.h.
#pragma once

#include "kernels/format/page_format.h"

namespace stria {

inline constexpr int kObservationThreads = 128;
inline constexpr int kObservationTile = 8;  // queries that share each load of a key

struct ObservationNormaliser {
  float max, inverse;  // largest score (log2), 1 / Σ 2^(score − max)
};

// All pointers are the device's, keys at 16-byte boundaries. Shapes as in ObservationArgs.
struct ObservationParams {
  AttentionShape shape;
  float q_scale = 0;  // log2(e) / √head_dim
  int query_begin = 0, query_end = 0;
  const float* q = nullptr;
  KvBlock keys;
  int scored = 0;
  ObservationNormaliser* normalisers = nullptr;  // [rows, heads], scratch
  float* scores = nullptr;                       // [kv_heads, scored]

  int Tiles() const { return (shape.group() + kObservationTile - 1) / kObservationTile; }  // of a group
};

}  // namespace stria
