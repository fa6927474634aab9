// SnapKV's votes, device code: first each query's softmax sum, then each key's votes, so that no two threads add to a score.
#pragma once

#include <limits>

#include "kernels/device/device.cuh"
#include "kernels/device/warp.cuh"
#include "kernels/evict/snapkv_device.h"

namespace stria::device {

struct ObservationShared {
  alignas(16) float q[kObservationTile][kMaxHeadDim];
  ObservationNormaliser normaliser[kObservationTile];
  float max[kObservationThreads / kWarp][kObservationTile], sum[kObservationThreads / kWarp][kObservationTile];
};

// Queries [first, first + kObservationTile) of a group in one row; those beyond the group are zero.
STRIA_DEVICE void LoadQueries(const ObservationParams& params, int row, int kv_head, int first, ObservationShared& shared) {
  const int dim = params.shape.head_dim, group = params.shape.heads / params.shape.kv_heads;
  const float* q = params.q + (static_cast<size_t>(row) * params.shape.heads + kv_head * group + first) * dim;
  for (int i = Thread(); i < kObservationTile * dim; i += kObservationThreads)
    shared.q[i / dim][i % dim] = first + i / dim < group ? q[i] * params.q_scale : 0.0f;
}

// Scores (log2) of the tile's queries against one key.
STRIA_DEVICE void ScoreKey(const ObservationShared& shared, const Half* key, int dim, float (&score)[kObservationTile]) {
  STRIA_UNROLL
  for (int i = 0; i < kObservationTile; ++i) score[i] = 0;
  for (int c = 0; c < dim; c += 8) {
    const Halves8 x = Load<Halves8>(key + c);
    for (int half = 0; half < 8; half += 4) {
      STRIA_UNROLL
      for (int i = 0; i < kObservationTile; ++i) {
        const Floats4 q = Load<Floats4>(&shared.q[i][c + half]);
        for (int k = 0; k < 4; ++k) score[i] += q.of[k] * FloatOf(x.of[half + k]);
      }
    }
  }
}

// Blocks: rows × Tiles() × KV heads; kObservationThreads.
STRIA_DEVICE void ObservationNormalisersKernel(const ObservationParams& params, ObservationShared& shared) {
  const int row = BlockX(), first = BlockY() * kObservationTile, kv_head = BlockZ(), dim = params.shape.head_dim;
  const int group = params.shape.heads / params.shape.kv_heads, warp = Thread() / kWarp;
  LoadQueries(params, row, kv_head, first, shared);
  SyncBlock();
  const Half* keys = params.keys.data + kv_head * params.keys.head_stride;
  float max[kObservationTile], sum[kObservationTile] = {}, score[kObservationTile];
  STRIA_UNROLL
  for (float& m : max) m = -std::numeric_limits<float>::infinity();
  for (int t = Thread(); t <= params.query_begin + row; t += kObservationThreads) {
    ScoreKey(shared, keys + static_cast<size_t>(t) * dim, dim, score);
    STRIA_UNROLL
    for (int i = 0; i < kObservationTile; ++i) {
      const float larger = Max(max[i], score[i]);
      sum[i] = sum[i] * Exp2(max[i] - larger) + Exp2(score[i] - larger);
      max[i] = larger;
    }
  }
  STRIA_UNROLL
  for (int i = 0; i < kObservationTile; ++i) {
    const float largest = WarpMax(max[i]);
    // A thread without keys has nothing to add; its factor would be 2^(−∞ + ∞) where the whole warp has none.
    const float total = WarpSum(sum[i] == 0 ? 0.0f : sum[i] * Exp2(max[i] - largest));
    if (Thread() % kWarp == 0) shared.max[warp][i] = largest, shared.sum[warp][i] = total;
  }
  SyncBlock();
  const int i = Thread();
  if (i >= kObservationTile || first + i >= group) return;
  float largest = shared.max[0][i], total = 0;
  for (int w = 1; w < kObservationThreads / kWarp; ++w) largest = Max(largest, shared.max[w][i]);
  for (int w = 0; w < kObservationThreads / kWarp; ++w)
    total += shared.sum[w][i] == 0 ? 0.0f : shared.sum[w][i] * Exp2(shared.max[w][i] - largest);
  params.normalisers[row * params.shape.heads + kv_head * group + first + i] = {largest, 1.0f / total};
}

// Blocks: scored / kObservationThreads, rounded up, × KV heads; kObservationThreads, one key each.
STRIA_DEVICE void ObservationVotesKernel(const ObservationParams& params, ObservationShared& shared) {
  const int t = BlockX() * kObservationThreads + Thread(), kv_head = BlockY(), dim = params.shape.head_dim;
  const int group = params.shape.heads / params.shape.kv_heads;
  const Half* keys = params.keys.data + kv_head * params.keys.head_stride;
  float votes = 0;
  for (int row = 0; row < params.query_end - params.query_begin; ++row) {
    for (int first = 0; first < group; first += kObservationTile) {
      SyncBlock();  // the last tile is done with
      LoadQueries(params, row, kv_head, first, shared);
      if (Thread() < kObservationTile && first + Thread() < group)
        shared.normaliser[Thread()] = params.normalisers[row * params.shape.heads + kv_head * group + first + Thread()];
      SyncBlock();
      if (t >= params.scored) continue;  // comes to the barriers still
      float score[kObservationTile];
      ScoreKey(shared, keys + static_cast<size_t>(t) * dim, dim, score);
      for (int i = 0; i < kObservationTile && first + i < group; ++i)
        votes += Exp2(score[i] - shared.normaliser[i].max) * shared.normaliser[i].inverse;
    }
  }
  if (t < params.scored) params.scores[static_cast<size_t>(kv_head) * params.scored + t] += votes;
}

}  // namespace stria::device
