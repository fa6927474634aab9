// Weights times the codes of an integer page, the heart of decode attention
// (kernels/attention/decode_kernel.cc).
//
// Integer pages never become floats. With x = middle + scale · (code − centre), a dot product over the inner
// index i is
//   Σ w_i x_i = Σ w_i middle_i − centre · Σ (w_i scale_i) + Σ (w_i scale_i) code_i,
// so FoldScales rounds the products w_i · scale_i to integers (8 bits for 2- and 4-bit codes, 16 bits for
// 8-bit ones) and adds up the two first terms, which are the same for all lanes, and AddCodeDots does the
// last, exact in integers. For keys w is the query and i a channel; for values w is the probabilities and i a
// token.
#pragma once

#include <type_traits>

#include "kernels/format/page_layout.h"
#include "kernels/simd/simd.h"

namespace stria::STRIA_SIMD {
namespace {  // for one source file: internal linkage lets the compiler specialise and inline

constexpr int kMaxHeads = 4;  // query heads that share each load

// 64-byte rows in flight: enough sums to hide the latency of a dot product.
constexpr int kBlocksAtOnce = kLanes == 16 ? 4 : 1;

// The weights of up to kMaxHeads query heads, scales folded in: Σ w · x over `inner` = base + step · Σ weight
// · code.
struct alignas(64) FoldedWeights {
  uint8_t weights[kMaxHeads][2 * kMaxHeadDim];
  float step[kMaxHeads];
  float base[kMaxHeads];
};

// Bytes of them that a row of codes takes.
template <int bits>
constexpr int kRowWeights = 4 * (8 / bits) * (bits == 8 ? 2 : 1);

// w [G, w_stride], inner numbers each. Signed weights are keys' (the query), unsigned ones values'
// (probabilities). With kInner = inner instead of 0 the products stay in registers.
template <int bits, int G, bool is_signed, int kInner>
void FoldScalesOf(const uint8_t* slice, const uint8_t* ahead, int any_inner, const float* w, int w_stride,
                  FoldedWeights& out) {
  const int inner = kInner > 0 ? kInner : any_inner;
  constexpr float kLargest = bits == 8 ? 32767.0f : is_signed ? 127.0f : 255.0f;
  constexpr float kCentre = ((1 << bits) - 1) / 2.0f;
  const Half* scales = reinterpret_cast<const Half*>(slice);
  const Half* middles = scales + inner;
  F scaled[kMaxHeadDim / kLanes][G];
  F largest[4], base[4];
  for (int g = 0; g < 4; ++g) largest[g] = base[g] = Set(0.0f);
#pragma GCC unroll 8
  for (int i = 0; i < inner; i += kLanes) {
    Prefetch(ahead + 4 * i);
    const F scale = LoadHalf(scales + i), middle = LoadHalf(middles + i);
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      const F x = Load(w + g * w_stride + i);
      const F y = x * scale;
      scaled[i / kLanes][g] = y;
      largest[g] = Max(largest[g], is_signed ? Abs(y) : y);
      base[g] = Fma(x, middle, base[g]);
    }
  }
  for (int i = inner; i % (4 * kLanes) != 0; i += kLanes) {
    for (int g = 0; g < G; ++g) scaled[i / kLanes][g] = Set(0.0f);
  }
  alignas(16) float max[4];
  StoreMaxima4(max, largest[0], largest[1], largest[2], largest[3]);
  for (int g = 0; g < G; ++g) {
    const F inverse = Set(max[g] > 1e-30f ? kLargest / max[g] : 0.0f);
    I sum = SetWord(0);
#pragma GCC unroll 8
    for (int i = 0; i < inner; i += 4 * kLanes) {
      I rounded[4];
      for (int v = 0; v < 4; ++v) rounded[v] = Round(scaled[i / kLanes + v][g] * inverse);
      if constexpr (bits == 8) {
        for (int v = 0; v < 4; ++v) {
          sum = Add(sum, rounded[v]);
          StoreLowWords0213(out.weights[g] + 2 * (i + v * kLanes), rounded[v]);
        }
      } else {
        const I bytes = PackBytes<is_signed>(rounded), ones = SetWord(0x01010101);
        StoreBytes(out.weights[g] + i, bytes);
        sum = Add(sum, Widen<is_signed>(is_signed ? DotBytes(ones, bytes) : DotBytes(bytes, ones)));
      }
    }
    out.step[g] = max[g] * (1.0f / kLargest);
    base[g] = Fma(Set(-kCentre * out.step[g]), ToFloat(sum), base[g]);
  }
  StoreSums4(out.base, base[0], base[1], base[2], base[3]);
}

template <int bits, int G, bool is_signed>
void FoldScales(const uint8_t* slice, const uint8_t* ahead, int inner, const float* w, int w_stride,
                FoldedWeights& out) {
  if (inner == 64) {
    FoldScalesOf<bits, G, is_signed, 64>(slice, ahead, inner, w, w_stride, out);
  } else {
    FoldScalesOf<bits, G, is_signed, 0>(slice, ahead, inner, w, w_stride, out);
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

// sums[v][g] += the dot products of one row of 8-bit codes: 16-bit products of even and odd bytes.
template <int G, int kVectors>
[[gnu::always_inline]] inline void AddRowOfBytes(const I (&raw)[kVectors], const uint8_t* weights, int stride,
                                                 Sums<kVectors, G>& sums) {
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

// The same for 2- or 4-bit codes, from `place` on. `start`: the sums are not set yet.
template <int bits, int place, int G, bool is_signed, int kVectors>
[[gnu::always_inline]] inline void AddRowOfPlaces(const I (&raw)[kVectors], const uint8_t* weights, int stride,
                                                  bool start, Sums<kVectors, G>& sums) {
  const I mask = SetWord(0x01010101 * ((1 << bits) - 1));
  I code[kVectors];
  for (int v = 0; v < kVectors; ++v)
    code[v] = And(place == 0 ? raw[v] : ShiftRight16<place * bits>(raw[v]), mask);
  for (int g = 0; g < G; ++g) {
    const I weight = Broadcast4(weights + g * stride + place * 4);
    for (int v = 0; v < kVectors; ++v) {
      const I u8 = is_signed ? code[v] : weight, s8 = is_signed ? weight : code[v];
      sums[v][g] = start ? DotBytes(u8, s8) : DotBytes(sums[v][g], u8, s8);
    }
  }
  if constexpr (place + 1 < 8 / bits)
    AddRowOfPlaces<bits, place + 1, G, is_signed>(raw, weights, stride, false, sums);
}

// A code matrix of at most kMaxHeadDim inner numbers, and how many of its rows one sum takes (simd_avx2.h).
template <int bits, bool is_signed>
struct RowLimits {
  static constexpr int kMost = kMaxHeadDim * bits / 32;
  static constexpr int kMaxProduct = ((1 << bits) - 1) * (is_signed ? 127 : 255);
  static constexpr int kSafe = bits == 8 ? kMost : DotsPerSum(kMaxProduct, is_signed) / (8 / bits);
  static constexpr bool kOneSum = kSafe >= kMost;
  static constexpr int kPerSum = 4;  // else: few enough to be unrolled
  static_assert(kOneSum || kPerSum <= kSafe);
};

// sums[v][g] += Σ weight · code over `rows` rows of kBlocks blocks.
template <int bits, int G, bool is_signed, int kBlocks>
[[gnu::always_inline]] inline void AddRows(const uint8_t* codes, const uint8_t* ahead, int block_bytes,
                                           int rows, const uint8_t* weights, bool start,
                                           Sums<kBlocks * kRowVectors, G>& sums) {
  constexpr int kVectors = kBlocks * kRowVectors;
  constexpr int kStride = sizeof(FoldedWeights::weights[0]);
  for (int row = 0; row < rows; ++row) {
    for (int block = 0; block < kBlocks; ++block) Prefetch(ahead + block * block_bytes + row * 64);
    I raw[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      raw[v] = LoadBytes(codes + (v / kRowVectors) * block_bytes + row * 64 + (v % kRowVectors) * 4 * kLanes);
    }
    const uint8_t* of_row = weights + row * kRowWeights<bits>;
    if constexpr (bits == 8) {
      AddRowOfBytes<G>(raw, of_row, kStride, sums);
    } else {
      AddRowOfPlaces<bits, 0, G, is_signed>(raw, of_row, kStride, start && row == 0, sums);
    }
  }
}

// Adds step[g] · Σ_inner weight · code to base[g] (keys) or to out[g][lane] (values), for kBlocks · 16 lanes of a
// code matrix with `rows` rows.
template <int bits, int G, bool is_signed, int kBlocks>
void AddCodeDotsOfBlocks(const uint8_t* codes, const uint8_t* ahead, int rows, const FoldedWeights& w,
                         float* out, int out_stride) {
  using Limits = RowLimits<bits, is_signed>;
  constexpr int kVectors = kBlocks * kRowVectors;
  Sums<kVectors, G> total;
  SetZero<kVectors, G>(total);
  if constexpr (Limits::kOneSum) {
    AddRows<bits, G, is_signed, kBlocks>(codes, ahead, rows * 64, rows, w.weights[0], false, total);
  } else {
    const auto add = [&](int row, auto count) __attribute__((always_inline)) {
      asm volatile("" : "+m"(total));  // leaves the registers to the rows' sums
      Sums<kVectors, G> sums;
      AddRows<bits, G, is_signed, kBlocks>(codes + row * 64, ahead + row * 64, rows * 64, count,
                                           w.weights[0] + row * kRowWeights<bits>, true, sums);
      for (int v = 0; v < kVectors; ++v) {
        for (int g = 0; g < G; ++g) total[v][g] = Add(total[v][g], Widen<is_signed>(sums[v][g]));
      }
    };
    const int whole = rows / Limits::kPerSum * Limits::kPerSum;
    for (int row = 0; row < whole; row += Limits::kPerSum)
      add(row, std::integral_constant<int, Limits::kPerSum>());
    for (int row = whole; row < rows; ++row) add(row, std::integral_constant<int, 1>());
  }
  for (int g = 0; g < G; ++g) {
    const F step = Set(w.step[g]), base = Set(w.base[g]);
    for (int v = 0; v < kVectors; ++v) {
      float* to = out + g * out_stride + v * kLanes;
      Store(to, Fma(step, ToFloat(total[v][g]), is_signed ? base : Load(to)));
    }
  }
}

template <int bits, int G, bool is_signed>
void AddCodeDots(const uint8_t* codes, const uint8_t* ahead, int blocks, int inner, const FoldedWeights& w,
                 float* out, int out_stride) {
  const int rows = inner * bits / 32;
  int block = 0;
  for (; block + kBlocksAtOnce <= blocks; block += kBlocksAtOnce) {
    AddCodeDotsOfBlocks<bits, G, is_signed, kBlocksAtOnce>(
        codes + block * rows * 64, ahead + block * rows * 64, rows, w, out + block * 16, out_stride);
  }
  for (; block < blocks; ++block) {
    AddCodeDotsOfBlocks<bits, G, is_signed, 1>(codes + block * rows * 64, ahead + block * rows * 64, rows, w,
                                               out + block * 16, out_stride);
  }
}

}  // namespace
}  // namespace stria::STRIA_SIMD
