// Decode attention over one run of pages (kernels/attention/decode_kernel.h), in terms of kernels/simd.
//
// Integer pages never become floats. With x = middle + scale · (code − centre), a dot product over the inner index i is
//   Σ w_i x_i = Σ w_i middle_i − centre · Σ (w_i scale_i) + Σ (w_i scale_i) code_i,
// so FoldScales rounds the products w_i · scale_i to integers (8 bits for 2- and 4-bit codes, 16 bits for 8-bit ones) and adds up
// the two first terms, which are the same for all lanes, and AddCodeDots does the last, exact in integers. For keys w is the
// query and i a channel; for values w is the probabilities and i a token. Everything else is one online softmax.
#include "kernels/attention/decode_kernel.h"

#include <utility>

#include "kernels/format/page_layout.h"
#include "kernels/simd/for_heads.h"

namespace stria::STRIA_SIMD {
namespace {

constexpr int kMaxHeads = 4;  // query heads that share each load
constexpr int kScoreStride = kChunkPages * kPageTokens;
constexpr int kBlocksAtOnce = kLanes == 16 ? 4 : 1;  // 64-byte rows in flight: enough sums to hide the latency of a dot product

constexpr size_t SliceBytes(int scales, int head_dim, Width width) {
  return width == Width::kFp16 ? size_t{2} * kPageTokens * head_dim
                               : size_t{4} * scales + size_t{8} * head_dim * static_cast<int>(width);
}
const uint8_t* Slice(const PageRef& page, int scales, int head_dim, int kv_head) {
  return static_cast<const uint8_t*>(page.data) + kv_head * SliceBytes(scales, head_dim, page.width);
}

// ---- Integer pages ----

// The weights of up to kMaxHeads query heads, scales folded in: Σ w · x over `inner` = base + step · Σ weight · code.
struct alignas(64) FoldedWeights {
  uint8_t weights[kMaxHeads][2 * kMaxHeadDim];
  float step[kMaxHeads];
  float base[kMaxHeads];
};

// w [G, w_stride], inner numbers each. Signed weights are keys' (the query), unsigned ones values' (probabilities).
template <int bits, int G, bool is_signed>
void FoldScales(const uint8_t* slice, const uint8_t* ahead, int inner, const float* w, int w_stride, FoldedWeights& out) {
  constexpr float kLargest = bits == 8 ? 32767.0f : is_signed ? 127.0f : 255.0f;
  constexpr float kCentre = ((1 << bits) - 1) / 2.0f;
  const Half* scales = reinterpret_cast<const Half*>(slice);
  const Half* middles = scales + inner;
  alignas(64) float scaled[G][kMaxHeadDim];
  F largest[G], base[G];
  for (int g = 0; g < G; ++g) largest[g] = base[g] = Set(0.0f);
  for (int i = 0; i < inner; i += kLanes) {
    const F scale = LoadHalf(scales + i), middle = LoadHalf(middles + i);
    if (i % 16 == 0) Prefetch(ahead + 4 * i);
    for (int g = 0; g < G; ++g) {
      const F x = Load(w + g * w_stride + i);
      const F y = x * scale;
      Store(scaled[g] + i, y);
      largest[g] = Max(largest[g], Abs(y));
      base[g] = Fma(x, middle, base[g]);
    }
  }
  for (int g = 0; g < G; ++g) {
    const float max = ReduceMax(largest[g]);
    const float inverse = max > 1e-30f ? kLargest / max : 0.0f;
    I sum = SetWord(0);
    for (int i = 0; i < inner; i += kLanes) {
      const I rounded = Round(Load(scaled[g] + i) * Set(inverse));
      sum = Add(sum, rounded);
      if constexpr (bits == 8) {
        StoreLowWords0213(out.weights[g] + 2 * i, rounded);
      } else {
        StoreLowBytes(out.weights[g] + i, rounded);
      }
    }
    out.step[g] = max * (1.0f / kLargest);
    out.base[g] = ReduceAdd(base[g]) - out.step[g] * kCentre * ReduceAdd(ToFloat(sum));
  }
}

// Sums of kVectors vectors of lanes for G heads.
template <int kVectors, int G>
using Sums = I[kVectors][G];

template <int kVectors, int G>
[[gnu::always_inline]] inline void SetZero(Sums<kVectors, G>& sums) {
  for (int v = 0; v < kVectors; ++v) {
    for (int g = 0; g < G; ++g) sums[v][g] = SetWord(0);
  }
}

// sums[v][g] += the dot products of row `row` in kBlocks blocks, 8-bit codes: 16-bit products of even and odd bytes.
template <int G, int kVectors>
[[gnu::always_inline]] inline void AddRowOfBytes(const I (&raw)[kVectors], const uint8_t* weights, int stride, Sums<kVectors, G>& sums) {
  I even[kVectors], odd[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    even[v] = And(raw[v], SetWord(0x00ff00ff));
    odd[v] = ShiftRight16<8>(raw[v]);
  }
  for (int g = 0; g < G; ++g) {
    const I w0 = Broadcast4(weights + g * stride), w1 = Broadcast4(weights + g * stride + 4);
    for (int v = 0; v < kVectors; ++v) sums[v][g] = DotWords(DotWords(sums[v][g], even[v], w0), odd[v], w1);
  }
}

// The same for the codes of one place of 2- or 4-bit codes.
template <int bits, int place, int G, bool is_signed, int kVectors>
[[gnu::always_inline]] inline void AddPlace(const I (&raw)[kVectors], const uint8_t* weights, int stride, Sums<kVectors, G>& sums) {
  const I mask = SetWord(0x01010101 * ((1 << bits) - 1));
  I code[kVectors];
  for (int v = 0; v < kVectors; ++v) code[v] = And(place == 0 ? raw[v] : ShiftRight16<place * bits>(raw[v]), mask);
  for (int g = 0; g < G; ++g) {
    const I weight = Broadcast4(weights + g * stride + place * 4);
    for (int v = 0; v < kVectors; ++v) {
      sums[v][g] = is_signed ? DotBytes(sums[v][g], code[v], weight) : DotBytes(sums[v][g], weight, code[v]);
    }
  }
}

// sums[v][g] += Σ weight · code over rows [begin, end) of kBlocks blocks.
template <int bits, int G, bool is_signed, int kBlocks>
[[gnu::always_inline]] inline void AddRows(const uint8_t* codes, const uint8_t* ahead, int block_bytes, int begin, int end,
                                           const FoldedWeights& w, Sums<kBlocks * kRowVectors, G>& sums) {
  constexpr int kVectors = kBlocks * kRowVectors;
  constexpr int kRowWeights = 4 * (8 / bits) * (bits == 8 ? 2 : 1);  // bytes of weights that a row takes
  constexpr int kStride = sizeof(w.weights[0]);
  for (int row = begin; row < end; ++row) {
    for (int block = 0; block < kBlocks; ++block) Prefetch(ahead + block * block_bytes + row * 64);
    I raw[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      raw[v] = LoadBytes(codes + (v / kRowVectors) * block_bytes + row * 64 + (v % kRowVectors) * 4 * kLanes);
    }
    const uint8_t* weights = w.weights[0] + row * kRowWeights;
    if constexpr (bits == 8) {
      AddRowOfBytes<G>(raw, weights, kStride, sums);
    } else {
      [&]<int... place>(std::integer_sequence<int, place...>) {
        (AddPlace<bits, place, G, is_signed>(raw, weights, kStride, sums), ...);
      }(std::make_integer_sequence<int, 8 / bits>{});
    }
  }
}

// out[g][lane] += step[g] · Σ_inner weight · code, for kBlocks · 16 lanes of a code matrix with `rows` rows.
template <int bits, int G, bool is_signed, int kBlocks>
void AddCodeDotsOfBlocks(const uint8_t* codes, const uint8_t* ahead, int rows, const FoldedWeights& w, float* out, int out_stride) {
  constexpr int kVectors = kBlocks * kRowVectors;
  constexpr int kMostRows = kMaxHeadDim / kGroupInner;
  constexpr int kMaxProduct = ((1 << bits) - 1) * (is_signed ? 127 : 255);
  constexpr int kRowsPerSum = bits == 8 ? kMostRows : DotsPerSum(kMaxProduct) / (8 / bits);
  static_assert(kRowsPerSum > 0);
  Sums<kVectors, G> total;
  SetZero<kVectors, G>(total);
  if constexpr (kRowsPerSum >= kMostRows) {
    AddRows<bits, G, is_signed, kBlocks>(codes, ahead, rows * 64, 0, rows, w, total);
  } else {
    for (int begin = 0; begin < rows; begin += kRowsPerSum) {
      const int end = begin + kRowsPerSum < rows ? begin + kRowsPerSum : rows;
      Sums<kVectors, G> sums;
      SetZero<kVectors, G>(sums);
      AddRows<bits, G, is_signed, kBlocks>(codes, ahead, rows * 64, begin, end, w, sums);
      for (int v = 0; v < kVectors; ++v) {
        for (int g = 0; g < G; ++g) total[v][g] = Add(total[v][g], Widen(sums[v][g]));
      }
    }
  }
  for (int g = 0; g < G; ++g) {
    const F step = Set(w.step[g]);
    for (int v = 0; v < kVectors; ++v) {
      float* to = out + g * out_stride + v * kLanes;
      Store(to, Fma(step, ToFloat(total[v][g]), Load(to)));
    }
  }
}

template <int bits, int G, bool is_signed>
void AddCodeDots(const uint8_t* codes, const uint8_t* ahead, int blocks, int inner, const FoldedWeights& w, float* out, int out_stride) {
  const int rows = inner * bits / 32;
  int block = 0;
  for (; block + kBlocksAtOnce <= blocks; block += kBlocksAtOnce) {
    AddCodeDotsOfBlocks<bits, G, is_signed, kBlocksAtOnce>(codes + block * rows * 64, ahead + block * rows * 64, rows, w, out + block * 16, out_stride);
  }
  for (; block < blocks; ++block) {
    AddCodeDotsOfBlocks<bits, G, is_signed, 1>(codes + block * rows * 64, ahead + block * rows * 64, rows, w, out + block * 16, out_stride);
  }
}

// scores[g][t] = q_g · k_t
template <int bits, int G>
void IntScores(const uint8_t* slice, const uint8_t* ahead, int head_dim, const float* q, float* scores) {
  FoldedWeights w;
  FoldScales<bits, G, true>(slice, ahead, head_dim, q, head_dim, w);
  for (int g = 0; g < G; ++g) {
    for (int t = 0; t < kPageTokens; t += kLanes) Store(scores + g * kScoreStride + t, Set(w.base[g]));
  }
  AddCodeDots<bits, G, true>(slice + 4 * head_dim, ahead + 4 * head_dim, kPageTokens / 16, head_dim, w, scores, kScoreStride);
}

// partial[g] += Σ_t p_gt · v_t. What is the same for all channels goes to shared[g].
template <int bits, int G>
void IntValues(const uint8_t* slice, const uint8_t* ahead, int head_dim, const float* p, float* partial, float* shared) {
  FoldedWeights w;
  FoldScales<bits, G, false>(slice, ahead, kPageTokens, p, kScoreStride, w);
  for (int g = 0; g < G; ++g) shared[g] += w.base[g];
  AddCodeDots<bits, G, false>(slice + 4 * kPageTokens, ahead + 4 * kPageTokens, head_dim / 16, kPageTokens, w, partial, PartialFloats(head_dim));
}

// ---- FP16 pages and tails ----

template <int G>
void HalfScores(const Half* keys, const uint8_t* ahead, int tokens, int head_dim, const float* q, float* scores) {
  int t = 0;
  for (; t + 4 <= tokens; t += 4) {
    F sum[4][G];
    for (int i = 0; i < 4; ++i) {
      for (int g = 0; g < G; ++g) sum[i][g] = Set(0.0f);
    }
    const Half* k = keys + t * head_dim;
    for (int c = 0; c < head_dim; c += 8) Prefetch(ahead + 2 * t * head_dim + 8 * c);
    for (int c = 0; c < head_dim; c += kLanes) {
      F x[4];
      for (int i = 0; i < 4; ++i) x[i] = LoadHalf(k + i * head_dim + c);
      for (int g = 0; g < G; ++g) {
        const F y = Load(q + g * head_dim + c);
        for (int i = 0; i < 4; ++i) sum[i][g] = Fma(x[i], y, sum[i][g]);
      }
    }
    for (int g = 0; g < G; ++g) StoreSums4(scores + g * kScoreStride + t, sum[0][g], sum[1][g], sum[2][g], sum[3][g]);
  }
  for (; t < tokens; ++t) {
    for (int g = 0; g < G; ++g) {
      F sum = Set(0.0f);
      for (int c = 0; c < head_dim; c += kLanes) {
        sum = Fma(LoadHalf(keys + t * head_dim + c), Load(q + g * head_dim + c), sum);
      }
      scores[g * kScoreStride + t] = ReduceAdd(sum);
    }
  }
}

template <int G, int kVectors>
void HalfValuesOfChannels(const Half* values, const uint8_t* ahead, int tokens, int head_dim, const float* p, float* partial) {
  F sum[kVectors][G];
  for (int v = 0; v < kVectors; ++v) {
    for (int g = 0; g < G; ++g) sum[v][g] = Load(partial + g * PartialFloats(head_dim) + v * kLanes);
  }
  for (int t = 0; t < tokens; ++t) {
    Prefetch(ahead + 2 * t * head_dim);
    if (kVectors * kLanes > 32) Prefetch(ahead + 2 * t * head_dim + 64);
    F x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = LoadHalf(values + t * head_dim + v * kLanes);
    for (int g = 0; g < G; ++g) {
      const F weight = Set(p[g * kScoreStride + t]);
      for (int v = 0; v < kVectors; ++v) sum[v][g] = Fma(weight, x[v], sum[v][g]);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    for (int g = 0; g < G; ++g) Store(partial + g * PartialFloats(head_dim) + v * kLanes, sum[v][g]);
  }
}

template <int G>
void HalfValues(const Half* values, const uint8_t* ahead, int tokens, int head_dim, const float* p, float* partial) {
  constexpr int kWide = 4 * kLanes;
  int c = 0;
  for (; c + kWide <= head_dim; c += kWide) HalfValuesOfChannels<G, 4>(values + c, ahead + 2 * c, tokens, head_dim, p, partial + c);
  for (; c < head_dim; c += kLanes) HalfValuesOfChannels<G, 1>(values + c, ahead + 2 * c, tokens, head_dim, p, partial + c);
}

// ---- The run ----

template <int G>
void Scores(const uint8_t* slice, const uint8_t* ahead, Width width, int tokens, int head_dim, const float* q, float* scores) {
  switch (width) {
    case Width::kInt2: return IntScores<2, G>(slice, ahead, head_dim, q, scores);
    case Width::kInt4: return IntScores<4, G>(slice, ahead, head_dim, q, scores);
    case Width::kInt8: return IntScores<8, G>(slice, ahead, head_dim, q, scores);
    case Width::kFp16: return HalfScores<G>(reinterpret_cast<const Half*>(slice), ahead, tokens, head_dim, q, scores);
  }
}

template <int G>
void Values(const uint8_t* slice, const uint8_t* ahead, Width width, int tokens, int head_dim, const float* p, float* partial, float* shared) {
  switch (width) {
    case Width::kInt2: return IntValues<2, G>(slice, ahead, head_dim, p, partial, shared);
    case Width::kInt4: return IntValues<4, G>(slice, ahead, head_dim, p, partial, shared);
    case Width::kInt8: return IntValues<8, G>(slice, ahead, head_dim, p, partial, shared);
    case Width::kFp16: return HalfValues<G>(reinterpret_cast<const Half*>(slice), ahead, tokens, head_dim, p, partial);
  }
}

// Page i of the run, counting on into what the thread reads next.
struct Position {
  const KvRun* run;
  int page;
  bool exists() const { return page < run->pages; }
};
Position PositionOf(const DecodeRunArgs& a, int i) {
  return i < a.run.pages ? Position{&a.run, i} : Position{&a.ahead, i - a.run.pages};
}
const uint8_t* KeySlice(const DecodeRunArgs& a, Position at) {
  return Slice(at.run->key_pages[at.page], a.head_dim, a.head_dim, at.run->kv_head);
}
const uint8_t* ValueSlice(const DecodeRunArgs& a, Position at) {
  return Slice(at.run->value_pages[at.page], kPageTokens, a.head_dim, at.run->kv_head);
}

// While one slice is worked on, another is prefetched line for line; these are the lines it has more of.
void PrefetchRest(const uint8_t* slice, size_t from, size_t to) {
  for (; from < to; from += 64) Prefetch(slice + from);
}

}  // namespace

void DecodeRun(const DecodeRunArgs& a) {
  const int dim = a.head_dim, group = a.group, stride = PartialFloats(dim);
  float* const sums = a.partial + dim;       // Σ p of head g at sums[g * stride]
  float* const maxima = a.partial + dim + 1;  // and its running maximum
  alignas(64) float q[kMaxGroup * kMaxHeadDim];
  float shared[kMaxGroup];
  for (int i = 0; i < group * dim; i += kLanes) Store(q + i, Load(a.q + i) * Set(a.q_scale));
  for (int g = 0; g < group; ++g) {
    for (int c = 0; c < dim; c += kLanes) Store(a.partial + g * stride + c, Set(0.0f));
    sums[g * stride] = shared[g] = 0.0f;
    maxima[g * stride] = -__builtin_inff();
  }

  // The tail counts as one more page.
  const int slices = a.run.pages + (a.run.tail > 0);
  const auto tokens = [&](int i) { return i < a.run.pages ? kPageTokens : a.run.tail; };
  const auto width_of = [&](int i, const PageRef* pages) { return i < a.run.pages ? pages[i].width : Width::kFp16; };
  for (int begin = 0, end; begin < slices; begin = end) {
    // A chunk is worth some 4 KiB of keys: enough to make up for the softmax, few enough to stay in the first cache.
    size_t chunk_bytes = 0;
    for (end = begin; end < slices && end - begin < kChunkPages && chunk_bytes < 4096; ++end) {
      chunk_bytes += SliceBytes(dim, dim, width_of(end, a.run.key_pages));
    }
    const int distance = end - begin;  // pages that prefetching is ahead

    for (int i = begin; i < end; ++i) {
      const Width width = width_of(i, a.run.key_pages);
      const uint8_t* slice = i < a.run.pages ? KeySlice(a, {&a.run, i}) : reinterpret_cast<const uint8_t*>(a.run.key_tail);
      const Position next = PositionOf(a, i + distance);
      const uint8_t* ahead = slice;
      if (next.exists()) {
        ahead = KeySlice(a, next);
        PrefetchRest(ahead, SliceBytes(dim, dim, width), SliceBytes(dim, dim, next.run->key_pages[next.page].width));
      }
      ForHeads<kMaxHeads>(group, [&]<int G>(int g) {
        Scores<G>(slice, ahead, width, tokens(i), dim, q + g * dim, a.scores + g * kScoreStride + (i - begin) * kPageTokens);
      });
    }

    // Online softmax over the chunk; lanes past the last token weigh nothing.
    const int count = (end - begin - 1) * kPageTokens + tokens(end - 1);
    const int padded = (count + kPageTokens - 1) / kPageTokens * kPageTokens;
    for (int g = 0; g < group; ++g) {
      float* const s = a.scores + g * kScoreStride;
      for (int t = count; t < padded; ++t) s[t] = -__builtin_inff();
      F chunk_max = Set(maxima[g * stride]);
      for (int t = 0; t < padded; t += kLanes) chunk_max = Max(chunk_max, Load(s + t));
      const float max = ReduceMax(chunk_max);
      if (max != maxima[g * stride]) {
        alignas(64) float rescale[kLanes];
        Store(rescale, Exp2(Set(maxima[g * stride] - max)));
        const F factor = Set(rescale[0]);
        float* const acc = a.partial + g * stride;
        for (int c = 0; c < dim; c += kLanes) Store(acc + c, Load(acc + c) * factor);
        sums[g * stride] *= rescale[0];
        shared[g] *= rescale[0];
        maxima[g * stride] = max;
      }
      F sum = Set(0.0f);
      for (int t = 0; t < padded; t += kLanes) {
        const F p = Exp2(Load(s + t) - Set(max));
        Store(s + t, p);
        sum = sum + p;
      }
      sums[g * stride] += ReduceAdd(sum);
    }

    for (int i = begin; i < end; ++i) {
      const Width width = width_of(i, a.run.value_pages);
      const uint8_t* slice = i < a.run.pages ? ValueSlice(a, {&a.run, i}) : reinterpret_cast<const uint8_t*>(a.run.value_tail);
      const Position next = PositionOf(a, i + distance);
      const uint8_t* ahead = slice;
      if (next.exists()) {
        ahead = ValueSlice(a, next);
        PrefetchRest(ahead, SliceBytes(kPageTokens, dim, width),
                     SliceBytes(kPageTokens, dim, next.run->value_pages[next.page].width));
      }
      ForHeads<kMaxHeads>(group, [&]<int G>(int g) {
        Values<G>(slice, ahead, width, tokens(i), dim, a.scores + g * kScoreStride + (i - begin) * kPageTokens,
                  a.partial + g * stride, shared + g);
      });
    }
  }
  for (int g = 0; g < group; ++g) {
    float* const acc = a.partial + g * stride;
    for (int c = 0; c < dim; c += kLanes) Store(acc + c, Load(acc + c) + Set(shared[g]));
  }
}

}  // namespace stria::STRIA_SIMD
