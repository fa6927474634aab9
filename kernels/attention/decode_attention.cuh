// Decode attention, device code. A block walks the pages of its unit (decode_device.h) with two stages in shared memory:
// while it works on one page the next arrives. Per page: key scales are folded into the query, the query becomes integer
// digits, digits times codes give scores; softmax goes on online; value scales are folded into the probabilities, which
// become digits in their turn. Widths of 2 and 4 bits use one 8-bit digit, 8 bits two; FP16 pages and the tail go through
// float. So integer sums are exact, and the error is that of the digits: as on the CPU.
#pragma once

#include <limits>

#include "kernels/attention/code_products.cuh"
#include "kernels/attention/decode_device.h"
#include "kernels/device/device.cuh"
#include "kernels/device/warp.cuh"

namespace stria::device {

// kMaxDim: 64, 128 or 256, the least that holds head_dim.
template <int kMaxDim>
struct DecodeShared {
  static constexpr int kPad = 8;            // halves behind a row of FP16 tokens, so that rows start in different banks
  static constexpr int kDigitStride = kMaxDim + 32;  // likewise for heads
  static constexpr int kWeightStride = kPageTokens + 32;

  // A slice as it lies in its page, or FP16 tokens [64][head_dim + kPad].
  struct Stage {
    alignas(16) uint8_t keys[sizeof(Half) * kPageTokens * (kMaxDim + kPad)];
    alignas(16) uint8_t values[sizeof(Half) * kPageTokens * (kMaxDim + kPad)];
  } stages[2];
  float q[kTileHeads][kMaxDim];                                // scaled by log2(e) / √head_dim
  alignas(16) uint8_t q_digits[2][kTileHeads * kDigitStride];  // high, low
  alignas(16) uint8_t p_digits[2][kTileHeads * kWeightStride];
  float p[kTileHeads][kPageTokens];  // scores, then probabilities
  float rescale[kTileHeads];         // of what was summed up so far, as the largest score grows

  // x = base + scale · Σ digit · (code − centre), in all heads.
  struct Folded {
    float scale[kTileHeads], base[kTileHeads];
    int32_t digit_sum[2][kTileHeads];
  } keys, values;
};

// Where a page, or the tail, comes from.
struct DecodeSource {
  const uint8_t *keys, *values;
  Width key_width, value_width;
  int tokens;
};

template <int kMaxDim, class Products>
class DecodePages {
  using Shared = DecodeShared<kMaxDim>;
  static constexpr int kWarps = kDecodeThreads / kWarp;
  static constexpr int kHeadsPerWarp = kTileHeads / kWarps;
  static constexpr int kBlocksPerWarp = kMaxDim / kRowLanes / kWarps;  // of 16 channels

 public:
  STRIA_DEVICE DecodePages(const DecodeParams& params, int unit, Shared& shared)
      : params_(params), unit_(params.units[unit]), kv_(params.kv[unit_.sequence]), dim_(params.shape.head_dim), shared_(shared) {}

  STRIA_DEVICE void Run(float* partial) {
    LoadQuery();
    Fetch(0);
    CommitCopies();
    for (int page = 0; page < unit_.pages; ++page) {
      if (page + 1 < unit_.pages) Fetch(page + 1);
      CommitCopies();
      WaitCopies<1>();
      SyncBlock();
      const DecodeSource source = SourceOf(page);
      const auto& stage = shared_.stages[page % 2];
      Scores(source, stage.keys);
      SyncBlock();
      Softmax(source, stage.values);
      SyncBlock();
      Values(source, stage.values);
      SyncBlock();  // before the stage is filled again
    }
    WaitCopies<0>();
    Store(partial);
  }

 private:
  STRIA_DEVICE int warp() const { return Thread() / kWarp; }
  STRIA_DEVICE int lane() const { return Thread() % kWarp; }
  STRIA_DEVICE int Row(int i) const { return lane() / 4 + i / 2 * 8; }  // of sum i, see code_products.cuh
  STRIA_DEVICE int Head(int i) const { return lane() % 4 * 2 + i % 2; }

  STRIA_DEVICE void LoadQuery() {
    const float* q = params_.q + (static_cast<size_t>(unit_.sequence) * params_.shape.heads + unit_.first_head) * dim_;
    for (int i = Thread(); i < kTileHeads * kMaxDim; i += kDecodeThreads) {
      const int head = i / kMaxDim, c = i % kMaxDim;
      shared_.q[head][c] = head < unit_.heads && c < dim_ ? q[head * dim_ + c] * params_.q_scale : 0.0f;
    }
  }

  STRIA_DEVICE DecodeSource SourceOf(int page) const {
    const int index = unit_.first_page + page;
    if (index == kv_.sealed_pages) {
      const size_t at = static_cast<size_t>(unit_.kv_head) * kPageTokens * dim_;
      return {reinterpret_cast<const uint8_t*>(kv_.key_ring + at), reinterpret_cast<const uint8_t*>(kv_.value_tail + at),
              Width::kFp16, Width::kFp16, kv_.tail};
    }
    const PageRef key = kv_.key_pages[index], value = kv_.value_pages[index];
    return {static_cast<const uint8_t*>(key.data) + unit_.kv_head * KeySliceBytes(dim_, key.width),
            static_cast<const uint8_t*>(value.data) + unit_.kv_head * ValueSliceBytes(dim_, value.width), key.width,
            value.width, kPageTokens};
  }

  STRIA_DEVICE void Fetch(int page) {
    const DecodeSource source = SourceOf(page);
    auto& stage = shared_.stages[page % 2];
    FetchSlice(stage.keys, source.keys, source.key_width, KeySliceBytes(dim_, source.key_width), source.tokens);
    FetchSlice(stage.values, source.values, source.value_width, ValueSliceBytes(dim_, source.value_width), source.tokens);
  }

  STRIA_DEVICE void FetchSlice(uint8_t* to, const uint8_t* from, Width width, size_t bytes, int tokens) {
    if (width != Width::kFp16) {
      for (int i = Thread(); i < static_cast<int>(bytes / 16); i += kDecodeThreads) CopyAsync16(to + i * 16, from + i * 16);
      return;
    }
    const int chunks = dim_ / 8;  // of a token
    for (int i = Thread(); i < tokens * chunks; i += kDecodeThreads) {
      CopyAsync16(to + (i / chunks * (dim_ + Shared::kPad) + i % chunks * 8) * sizeof(Half), from + i * 16);
    }
  }

  // ---- Scores ----

  STRIA_DEVICE void Scores(const DecodeSource& source, const uint8_t* keys) {
    switch (source.key_width) {
      case Width::kInt2: return CodedScores<2>(keys);
      case Width::kInt4: return CodedScores<4>(keys);
      case Width::kInt8: return CodedScores<8>(keys);
      case Width::kFp16: return HalfScores(reinterpret_cast<const Half*>(keys), source.tokens);
    }
  }

  template <int kBits>
  STRIA_DEVICE void CodedScores(const uint8_t* slice) {
    FoldQuery<kBits>(reinterpret_cast<const Half*>(slice));
    SyncBlock();
    const uint8_t* codes = slice + 2 * sizeof(Half) * dim_ + warp() * kRowLanes * dim_ * kBits / 8;
    float x[4];
    Unfold<kBits, true>(codes, dim_, shared_.q_digits[0], shared_.q_digits[1], Shared::kDigitStride, shared_.keys, x);
    for (int i = 0; i < 4; ++i) shared_.p[Head(i)][warp() * kRowLanes + Row(i)] = x[i];
  }

  template <int kBits>
  STRIA_DEVICE void FoldQuery(const Half* scales) {
    const Half* middles = scales + dim_;
    for (int k = 0; k < kHeadsPerWarp; ++k) {
      const int head = warp() + k * kWarps;
      float largest = 0, base = 0;
      for (int c = lane(); c < dim_; c += kWarp) {
        largest = Max(largest, Abs(shared_.q[head][c] * FloatOf(scales[c])));
        base += shared_.q[head][c] * FloatOf(middles[c]);
      }
      constexpr float kSteps = kBits == 8 ? 32512.0f : 127.0f;
      const Digits digits = {WarpMax(largest), kSteps, -kSteps};
      int32_t high_sum = 0, low_sum = 0;
      for (int c = lane(); c < ((dim_ + 31) & ~31); c += kWarp) {
        const int digit = c < dim_ ? digits.Of(shared_.q[head][c] * FloatOf(scales[c])) : 0;
        const int high = kBits == 8 ? (digit + 128) >> 8 : digit, low = digit - high * 256;
        shared_.q_digits[0][head * Shared::kDigitStride + c] = static_cast<uint8_t>(high);
        if (kBits == 8) shared_.q_digits[1][head * Shared::kDigitStride + c] = static_cast<uint8_t>(low);
        high_sum += high;
        low_sum += low;
      }
      SetFolded(shared_.keys, head, digits.Step(), WarpSum(base), WarpSum(high_sum), WarpSum(low_sum));
    }
  }

  STRIA_DEVICE void HalfScores(const Half* keys, int tokens) {
    float x[4] = {};
    const int stride = dim_ + Shared::kPad, token = warp() * kRowLanes + Row(0);
    for (int c = 0; c < dim_; c += 2) {
      const Floats2 q[2] = {Load<Floats2>(&shared_.q[Head(0)][c]), Load<Floats2>(&shared_.q[Head(1)][c])};
      for (int half = 0; half < 2; ++half) {
        if (token + half * 8 >= tokens) continue;
        const Halves2 key = Load<Halves2>(keys + (token + half * 8) * stride + c);
        for (int h = 0; h < 2; ++h) x[half * 2 + h] += q[h].x * FloatOf(key.x) + q[h].y * FloatOf(key.y);
      }
    }
    for (int i = 0; i < 4; ++i) {
      const int t = warp() * kRowLanes + Row(i);
      shared_.p[Head(i)][t] = t < tokens ? x[i] : -std::numeric_limits<float>::infinity();
    }
  }

  // ---- Softmax ----

  STRIA_DEVICE void Softmax(const DecodeSource& source, const uint8_t* values) {
    for (int k = 0; k < kHeadsPerWarp; ++k) {
      const int head = warp() + k * kWarps;
      float p[2] = {shared_.p[head][lane()], shared_.p[head][lane() + kWarp]};
      const float max = Max(max_[k], WarpMax(Max(p[0], p[1]))), rescale = Exp2(max_[k] - max);
      max_[k] = max;
      for (float& x : p) x = Exp2(x - max);
      sum_[k] = sum_[k] * rescale + p[0] + p[1];
      if (lane() == 0) shared_.rescale[head] = rescale;
      switch (source.value_width) {
        case Width::kFp16:
          for (int i = 0; i < 2; ++i) shared_.p[head][lane() + i * kWarp] = p[i];
          break;
        case Width::kInt8: FoldWeights<8>(head, p, reinterpret_cast<const Half*>(values)); break;
        default: FoldWeights<4>(head, p, reinterpret_cast<const Half*>(values)); break;  // one digit
      }
    }
  }

  template <int kBits>
  STRIA_DEVICE void FoldWeights(int head, const float (&p)[2], const Half* scales) {
    const Half* middles = scales + kPageTokens;
    float weight[2], base = 0;
    for (int i = 0; i < 2; ++i) {
      weight[i] = p[i] * FloatOf(scales[lane() + i * kWarp]);
      base += p[i] * FloatOf(middles[lane() + i * kWarp]);
    }
    constexpr float kSteps = kBits == 8 ? 65535.0f : 255.0f;
    const Digits digits = {WarpMax(Max(weight[0], weight[1])), kSteps, 0.0f};
    int32_t high_sum = 0, low_sum = 0;
    for (int i = 0; i < 2; ++i) {
      const int digit = digits.Of(weight[i]), high = kBits == 8 ? digit >> 8 : digit, low = digit & 255;
      shared_.p_digits[0][head * Shared::kWeightStride + lane() + i * kWarp] = static_cast<uint8_t>(high);
      if (kBits == 8) shared_.p_digits[1][head * Shared::kWeightStride + lane() + i * kWarp] = static_cast<uint8_t>(low);
      high_sum += high;
      low_sum += low;
    }
    SetFolded(shared_.values, head, digits.Step(), WarpSum(base), WarpSum(high_sum), WarpSum(low_sum));
  }

  // ---- Values ----

  STRIA_DEVICE void Values(const DecodeSource& source, const uint8_t* values) {
    switch (source.value_width) {
      case Width::kInt2: return CodedValues<2>(values);
      case Width::kInt4: return CodedValues<4>(values);
      case Width::kInt8: return CodedValues<8>(values);
      case Width::kFp16: return HalfValues(reinterpret_cast<const Half*>(values), source.tokens);
    }
  }

  template <int kBits>
  STRIA_DEVICE void CodedValues(const uint8_t* slice) {
    STRIA_UNROLL
    for (int k = 0; k < kBlocksPerWarp; ++k) {
      const int block = warp() + k * kWarps;
      if (block * kRowLanes >= dim_) continue;  // the same for the whole warp
      const uint8_t* codes = slice + 2 * sizeof(Half) * kPageTokens + block * kRowLanes * kPageTokens * kBits / 8;
      float x[4];
      Unfold<kBits, false>(codes, kPageTokens, shared_.p_digits[0], shared_.p_digits[1], Shared::kWeightStride,
                           shared_.values, x);
      for (int i = 0; i < 4; ++i) out_[k][i] = out_[k][i] * shared_.rescale[Head(i)] + x[i];
    }
  }

  STRIA_DEVICE void HalfValues(const Half* values, int tokens) {
    STRIA_UNROLL
    for (int k = 0; k < kBlocksPerWarp; ++k) {
      const int channel = (warp() + k * kWarps) * kRowLanes + Row(0);
      if (channel >= dim_) continue;
      for (int i = 0; i < 4; ++i) out_[k][i] *= shared_.rescale[Head(i)];
      for (int t = 0; t < tokens; ++t) {
        const Half* value = values + t * (dim_ + Shared::kPad) + channel;
        for (int i = 0; i < 4; ++i) out_[k][i] += shared_.p[Head(i)][t] * FloatOf(value[i / 2 * 8]);
      }
    }
  }

  // ---- Folding ----

  // Integers within ±steps (or 0 to steps) in place of numbers of at most `largest`. NaN becomes `low`.
  struct Digits {
    float largest, steps, low;
    STRIA_DEVICE float Step() const { return largest / steps; }
    STRIA_DEVICE int Of(float x) const {
      const float inverse = largest > 0 ? steps / largest : 0.0f;
      return RoundToInt(Min(Max(x * inverse, low), steps));
    }
  };

  STRIA_DEVICE void SetFolded(typename Shared::Folded& folded, int head, float scale, float base, int32_t high_sum,
                              int32_t low_sum) {
    if (lane() != 0) return;
    folded.scale[head] = scale;
    folded.base[head] = base;
    folded.digit_sum[0][head] = high_sum;
    folded.digit_sum[1][head] = low_sum;
  }

  template <int kBits, bool kSignedDigits>
  STRIA_DEVICE void Unfold(const uint8_t* codes, int inner, const uint8_t* high, const uint8_t* low, int stride,
                           const typename Shared::Folded& folded, float (&x)[4]) {
    constexpr int kTwiceCentre = (1 << kBits) - 1;
    int32_t high_sum[4] = {}, low_sum[4] = {};
    Products::template AddProducts<kBits, kSignedDigits>(codes, inner, high, stride, high_sum);
    if (kBits == 8) Products::template AddProducts<kBits, kSignedDigits>(codes, inner, low, stride, low_sum);
    for (int i = 0; i < 4; ++i) {
      const int head = Head(i);
      float sum = static_cast<float>(2 * high_sum[i] - kTwiceCentre * folded.digit_sum[0][head]);
      if (kBits == 8) sum = 256 * sum + static_cast<float>(2 * low_sum[i] - kTwiceCentre * folded.digit_sum[1][head]);
      x[i] = folded.base[head] + folded.scale[head] * 0.5f * sum;
    }
  }

  STRIA_DEVICE void Store(float* partial) {
    const int stride = DevicePartialFloats(dim_);
    STRIA_UNROLL
    for (int k = 0; k < kBlocksPerWarp; ++k) {
      for (int i = 0; i < 4; ++i) {
        const int channel = (warp() + k * kWarps) * kRowLanes + Row(i);
        if (channel < dim_ && Head(i) < unit_.heads) partial[Head(i) * stride + channel] = out_[k][i];
      }
    }
    for (int k = 0; k < kHeadsPerWarp; ++k) {
      const int head = warp() + k * kWarps;
      const float sum = WarpSum(sum_[k]);
      if (lane() != 0 || head >= unit_.heads) continue;
      partial[head * stride + dim_] = sum;
      partial[head * stride + dim_ + 1] = max_[k];
    }
  }

  const DecodeParams& params_;
  const DecodeUnit unit_;
  const SequenceKv kv_;
  const int dim_;
  Shared& shared_;
  float out_[kBlocksPerWarp][4] = {};  // channel block warp + 4k, as Row and Head say
  float max_[kHeadsPerWarp] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  float sum_[kHeadsPerWarp] = {};  // of this lane's tokens
};

// One block per unit, kDecodeThreads.
template <int kMaxDim, class Products>
STRIA_DEVICE void DecodeAttentionKernel(const DecodeParams& params, DecodeShared<kMaxDim>& shared) {
  const size_t floats = static_cast<size_t>(kTileHeads) * DevicePartialFloats(params.shape.head_dim);
  DecodePages<kMaxDim, Products>(params, BlockX(), shared).Run(params.partials + BlockX() * floats);
}

// One block per merge: adds up its units in order. Any number of threads.
STRIA_DEVICE void DecodeMergeKernel(const DecodeParams& params) {
  const int dim = params.shape.head_dim, stride = DevicePartialFloats(dim);
  const DecodeMerge merge = params.merges[BlockX()];
  const DecodeUnit unit = params.units[merge.first_unit];
  for (int i = Thread(); i < unit.heads * dim; i += Threads()) {
    const int head = i / dim, c = i % dim;
    const float* first = params.partials + (static_cast<size_t>(merge.first_unit) * kTileHeads + head) * stride;
    float max = first[dim + 1];
    for (int u = 1; u < merge.units; ++u) max = Max(max, first[static_cast<size_t>(u) * kTileHeads * stride + dim + 1]);
    float sum = 0, x = 0;
    for (int u = 0; u < merge.units; ++u) {
      const float* partial = first + static_cast<size_t>(u) * kTileHeads * stride;
      const float factor = Exp2(partial[dim + 1] - max);
      sum += factor * partial[dim];
      x += factor * partial[c];
    }
    params.out[(static_cast<size_t>(unit.sequence) * params.shape.heads + unit.first_head + head) * dim + c] = x / sum;
  }
}

}  // namespace stria::device
