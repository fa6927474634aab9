// The canary, device code: a block reads one ring. Two query heads at a time; a thread scores one key for one of them, with
// what each width would change of the score summed up apart, so that small readings keep their digits.
#pragma once

#include <limits>

#include "kernels/canary/canary.h"
#include "kernels/canary/canary_device.h"
#include "kernels/device/device.cuh"
#include "kernels/device/warp.cuh"
#include "kernels/format/quantizer.cuh"

namespace stria::device {

inline constexpr int kCanaryHeads = kCanaryThreads / kPageTokens;  // at a time

struct CanaryShared {
  static constexpr int kStride = kMaxHeadDim + 2;
  Half keys[kPageTokens][kStride];
  float middle[kMaxHeadDim];
  float scale[kCanaryWidths][kMaxHeadDim], inverse[kCanaryWidths][kMaxHeadDim];
  float score[kCanaryHeads][kPageTokens];                   // of the exact keys
  float change[kCanaryHeads][kCanaryWidths][kPageTokens];  // exact less quantised
  float sums[kCanaryHeads][kCanaryWidths];
};

// exp(−e) − 1 + e, without cancellation near 0.
STRIA_DEVICE float ExpExcess(float e) {
  if (Abs(e) > 0.25f) return Exp2(e * -1.44269504f) - 1.0f + e;
  return e * e * (0.5f - e * (1.0f / 6 - e * (1.0f / 24 - e * (1.0f / 120 - e * (1.0f / 720)))));
}

// KL of one head by one warp. With p the exact softmax and e = change less its mean under p: log(1 + Σ p (exp(−e) − 1 + e)).
STRIA_DEVICE void AddDivergences(const CanaryShared& shared, int head, int valid, float (&sums)[kCanaryWidths]) {
  const int lane = Thread() % kWarp;
  float score[2], p[2];
  for (int i = 0; i < 2; ++i)
    score[i] = lane + i * kWarp < valid ? shared.score[head][lane + i * kWarp] : -std::numeric_limits<float>::infinity();
  const float max = WarpMax(Max(score[0], score[1]));
  for (int i = 0; i < 2; ++i) p[i] = Exp2((score[i] - max) * 1.44269504f);
  const float inverse = 1.0f / WarpSum(p[0] + p[1]);
  for (int w = 0; w < kCanaryWidths; ++w) {
    float change[2], mean = 0, excess = 0;
    for (int i = 0; i < 2; ++i) {
      change[i] = lane + i * kWarp < valid ? shared.change[head][w][lane + i * kWarp] : 0.0f;
      mean += p[i] * inverse * change[i];
    }
    mean = WarpSum(mean);
    for (int i = 0; i < 2; ++i) excess += p[i] * inverse * ExpExcess(change[i] - mean);
    sums[w] += Log1p(WarpSum(excess));
  }
}

// Block per job, kCanaryThreads.
STRIA_DEVICE void CanaryKernel(const AttentionShape& shape, float q_scale, const CanaryJob* jobs, CanaryShared& shared) {
  const CanaryJob job = jobs[BlockX()];
  const int dim = shape.head_dim, group = shape.heads / shape.kv_heads;
  const int token = Thread() % kPageTokens, slot = Thread() / kPageTokens, warp = Thread() / kWarp;
  float sums[kCanaryWidths] = {};
  for (int kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
    const Half* keys = job.key_ring + static_cast<size_t>(kv_head) * kPageTokens * dim;
    SyncBlock();  // the last head's keys are done with
    for (int i = Thread(); i < job.valid * dim; i += kCanaryThreads) shared.keys[i / dim][i % dim] = keys[i];
    SyncBlock();
    for (int c = Thread(); c < dim; c += kCanaryThreads) {
      Range range;
      for (int t = 0; t < job.valid; ++t) range.Add(FloatOf(shared.keys[t][c]));
      for (int w = 0; w < kCanaryWidths; ++w) {
        const RangeQuantizer quantizer(range, 2 << w);
        shared.middle[c] = quantizer.middle_value;
        shared.scale[w][c] = quantizer.scale_value;
        shared.inverse[w][c] = quantizer.inverse;
      }
    }
    SyncBlock();
    for (int first = 0; first < group; first += kCanaryHeads) {
      if (token < job.valid && first + slot < group) {
        const float* q = job.q + (kv_head * group + first + slot) * dim;
        float score = 0, change[kCanaryWidths] = {};
        for (int c = 0; c < dim; ++c) {
          const float x = FloatOf(shared.keys[token][c]), middle = shared.middle[c], weight = q[c] * q_scale;
          score += weight * x;
          for (int w = 0; w < kCanaryWidths; ++w) {
            const float centre = static_cast<float>((1 << (2 << w)) - 1) / 2;
            const int code = CodeOf(x, middle, shared.inverse[w][c], 2 << w);
            change[w] += weight * (x - (middle + shared.scale[w][c] * (static_cast<float>(code) - centre)));
          }
        }
        shared.score[slot][token] = score;
        for (int w = 0; w < kCanaryWidths; ++w) shared.change[slot][w][token] = change[w];
      }
      SyncBlock();
      if (warp < kCanaryHeads && first + warp < group) AddDivergences(shared, warp, job.valid, sums);
      SyncBlock();
    }
  }
  if (warp < kCanaryHeads && Thread() % kWarp == 0)
    for (int w = 0; w < kCanaryWidths; ++w) shared.sums[warp][w] = sums[w];
  SyncBlock();
  if (Thread() < kCanaryWidths)
    job.out[Thread()] = (shared.sums[0][Thread()] + shared.sums[1][Thread()]) / static_cast<float>(shape.heads);
}

}  // namespace stria::device
