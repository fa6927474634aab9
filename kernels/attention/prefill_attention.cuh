// Prefill attention, device code: float arithmetic over the FP16 staging, 64 tokens at a time, the next ones on their way.
// A warp owns a quarter of the block's (row, head) pairs from their softmax on, so probabilities need no barrier.
#pragma once

#include <limits>

#include "kernels/attention/prefill_device.h"
#include "kernels/device/device.cuh"
#include "kernels/device/warp.cuh"

namespace stria::device {

inline constexpr int kPrefillWarps = kPrefillThreads / kWarp;
inline constexpr int kWarpPairs = kPrefillPairs / kPrefillWarps;

// kMaxDim: 64, 128 or 256, the least that holds head_dim.
template <int kMaxDim>
struct PrefillShared {
  static constexpr int kPad = 8;  // halves behind a token, so that tokens start in different banks
  struct Stage {
    alignas(16) Half keys[kPageTokens * (kMaxDim + kPad)];
    alignas(16) Half values[kPageTokens * (kMaxDim + kPad)];
  } stages[2];
  alignas(16) float q[kPrefillPairs][kMaxDim];            // scaled by log2(e) / √head_dim
  alignas(16) float p[kPageTokens][kPrefillPairs + 4];  // scores, then probabilities
};

template <int kMaxDim>
class PrefillBlock {
  using Shared = PrefillShared<kMaxDim>;
  static constexpr int kChannelSteps = kMaxDim / (2 * kWarp);

 public:
  STRIA_DEVICE PrefillBlock(const PrefillParams& params, int first_pair, int kv_head, Shared& shared)
      : params_(params), first_pair_(first_pair), kv_head_(kv_head), dim_(params.shape.head_dim),
        group_(params.shape.heads / params.shape.kv_heads), pairs_((params.query_end - params.query_begin) * group_),
        shared_(shared) {}

  STRIA_DEVICE void Run() {
    for (int i = Thread(); i < kPrefillPairs * kMaxDim; i += kPrefillThreads) {
      const int pair = i / kMaxDim, c = i % kMaxDim;
      const bool real = first_pair_ + pair < pairs_ && c < dim_;
      shared_.q[pair][c] = real ? params_.q[At(first_pair_ + pair) + c] * params_.q_scale : 0.0f;
    }
    int last_pair = first_pair_ + kPrefillPairs - 1;
    if (last_pair >= pairs_) last_pair = pairs_ - 1;
    const int tokens = Position(last_pair) + 1, tiles = (tokens + kPageTokens - 1) / kPageTokens;
    Fetch(0, tokens);
    CommitCopies();
    for (int tile = 0; tile < tiles; ++tile) {
      if (tile + 1 < tiles) Fetch(tile + 1, tokens);
      CommitCopies();
      WaitCopies<1>();
      SyncBlock();
      const int begin = tile * kPageTokens, count = tokens - begin < kPageTokens ? tokens - begin : kPageTokens;
      const auto& stage = shared_.stages[tile % 2];
      Scores(stage.keys, begin, count);
      SyncBlock();
      Softmax();
      SyncWarp(kAllLanes);
      AddValues(stage.values, count);
      SyncBlock();  // before the stage and the scores are written again
    }
    WaitCopies<0>();
    Store();
  }

 private:
  // Pair i is query head i mod group of row i / group.
  STRIA_DEVICE int Position(int pair) const { return params_.query_begin + pair / group_; }
  STRIA_DEVICE size_t At(int pair) const {
    return (static_cast<size_t>(pair / group_) * params_.shape.heads + kv_head_ * group_ + pair % group_) * dim_;
  }

  STRIA_DEVICE void Fetch(int tile, int tokens) {
    const int begin = tile * kPageTokens, count = tokens - begin < kPageTokens ? tokens - begin : kPageTokens;
    const Half* keys = params_.keys.data + kv_head_ * params_.keys.head_stride + static_cast<size_t>(begin) * dim_;
    const Half* values = params_.values.data + kv_head_ * params_.values.head_stride + static_cast<size_t>(begin) * dim_;
    auto& stage = shared_.stages[tile % 2];
    const int chunks = dim_ / 8;  // of a token
    for (int i = Thread(); i < count * chunks; i += kPrefillThreads) {
      const int to = i / chunks * (dim_ + Shared::kPad) + i % chunks * 8;
      CopyAsync16(stage.keys + to, keys + i * 8);
      CopyAsync16(stage.values + to, values + i * 8);
    }
  }

  // A thread takes one token and half of the pairs.
  STRIA_DEVICE void Scores(const Half* keys, int begin, int count) {
    constexpr int kPairs = kPrefillPairs * kPageTokens / kPrefillThreads;
    const int token = Thread() % kPageTokens, first = Thread() / kPageTokens * kPairs;
    float x[kPairs] = {};
    if (token < count) {
      for (int c = 0; c < dim_; c += 8) {
        const Halves8 key = Load<Halves8>(keys + token * (dim_ + Shared::kPad) + c);
        for (int half = 0; half < 8; half += 4) {
          STRIA_UNROLL
          for (int i = 0; i < kPairs; ++i) {
            const Floats4 q = Load<Floats4>(&shared_.q[first + i][c + half]);
            for (int k = 0; k < 4; ++k) x[i] += q.of[k] * FloatOf(key.of[half + k]);
          }
        }
      }
    }
    STRIA_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const bool seen = token < count && begin + token <= Position(first_pair_ + first + i);
      shared_.p[token][first + i] = seen ? x[i] : -std::numeric_limits<float>::infinity();
    }
  }

  STRIA_DEVICE void Softmax() {
    const int lane = Thread() % kWarp;
    STRIA_UNROLL
    for (int i = 0; i < kWarpPairs; ++i) {
      const int pair = Thread() / kWarp * kWarpPairs + i;
      float &a = shared_.p[lane][pair], &b = shared_.p[lane + kWarp][pair];
      const float max = Max(max_[i], WarpMax(Max(a, b))), rescale = Exp2(max_[i] - max);
      a = Exp2(a - max);
      b = Exp2(b - max);
      sum_[i] = sum_[i] * rescale + a + b;
      max_[i] = max;
      STRIA_UNROLL
      for (int k = 0; k < kChannelSteps; ++k) out_[i][k][0] *= rescale, out_[i][k][1] *= rescale;
    }
  }

  // A lane takes channels 2 · lane + 64k and the next.
  STRIA_DEVICE void AddValues(const Half* values, int count) {
    const int warp = Thread() / kWarp, lane = Thread() % kWarp;
    for (int t = 0; t < count; ++t) {
      const Floats4 p = Load<Floats4>(&shared_.p[t][warp * kWarpPairs]);
      STRIA_UNROLL
      for (int k = 0; k < kChannelSteps; ++k) {
        const int c = 2 * (lane + k * kWarp);
        if (c >= dim_) continue;
        const Halves2 value = Load<Halves2>(values + t * (dim_ + Shared::kPad) + c);
        STRIA_UNROLL
        for (int i = 0; i < kWarpPairs; ++i) {
          out_[i][k][0] += p.of[i] * FloatOf(value.x);
          out_[i][k][1] += p.of[i] * FloatOf(value.y);
        }
      }
    }
  }

  STRIA_DEVICE void Store() {
    STRIA_UNROLL
    for (int i = 0; i < kWarpPairs; ++i) {
      const int pair = first_pair_ + Thread() / kWarp * kWarpPairs + i;
      const float inverse = 1.0f / WarpSum(sum_[i]);
      if (pair >= pairs_) continue;
      STRIA_UNROLL
      for (int k = 0; k < kChannelSteps; ++k) {
        const int c = 2 * (Thread() % kWarp + k * kWarp);
        if (c < dim_) device::Store(params_.out + At(pair) + c, Floats2{out_[i][k][0] * inverse, out_[i][k][1] * inverse});
      }
    }
  }

  const PrefillParams& params_;
  const int first_pair_, kv_head_, dim_, group_, pairs_;
  Shared& shared_;
  static constexpr float kLowest = -std::numeric_limits<float>::infinity();
  float max_[kWarpPairs] = {kLowest, kLowest, kLowest, kLowest};
  float sum_[kWarpPairs] = {};  // of this lane's tokens
  float out_[kWarpPairs][kChannelSteps][2] = {};
};

// Blocks: PrefillParams::Blocks() × KV heads; kPrefillThreads.
template <int kMaxDim>
STRIA_DEVICE void PrefillAttentionKernel(const PrefillParams& params, PrefillShared<kMaxDim>& shared) {
  PrefillBlock<kMaxDim>(params, BlockX() * kPrefillPairs, BlockY(), shared).Run();
}

}  // namespace stria::device
