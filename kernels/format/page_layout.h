// Where each number of a page lies (docs/formats.md draws it). For the kernels only: everyone else asks
// page_format.h for sizes.
//
// A page is a row of head slices, one per KV head. An FP16 slice is [64 tokens][head_dim] halves. A quantised
// slice is
//   scales [n] FP16, middles [n] FP16   n = head_dim for keys (per channel), 64 for values (per token)
//   codes                               a CodeMatrix
// and stands for  x = middle + scale · (code − (2^bits − 1) / 2).
//
// Both dot products of attention sum over an inner index: q·k over channels, p·v over tokens. What is left is
// the lane: the token of a key, the channel of a value. The CodeMatrix serves both: one 32-bit word holds
// four inner neighbours of one lane (what one integer dot-product instruction reads), and a byte holds 8 /
// bits such codes, so that a 64-byte row is loaded once and feeds 8 / bits dot products by shift and mask.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/format/page_format.h"

namespace stria {

inline constexpr int kRowLanes = 16;   // 32-bit words of one 64-byte row
inline constexpr int kGroupInner = 4;  // inner neighbours in one word

// Codes of `lanes` × `inner` elements, both multiples of 16: [lanes / 16][rows][16 lanes][4] bytes.
// Inner group g = inner index / 4 lies in row g / places, at place g mod places: bits [place · bits, (place +
// 1) · bits) of each byte.
struct CodeMatrix {
  int bits;
  int lanes;
  int inner;

  constexpr int places() const { return 8 / bits; }
  constexpr int rows() const { return inner / kGroupInner / places(); }
  constexpr size_t bytes() const { return size_t{1} * lanes * inner * bits / 8; }

  constexpr size_t ByteOf(int lane, int inner_index) const {
    const int row = inner_index / kGroupInner / places();
    return ((size_t{1} * (lane / kRowLanes) * rows() + row) * kRowLanes + lane % kRowLanes) * kGroupInner +
           inner_index % kGroupInner;
  }
  constexpr int ShiftOf(int inner_index) const { return inner_index / kGroupInner % places() * bits; }

  int Get(const uint8_t* codes, int lane, int inner_index) const {
    return codes[ByteOf(lane, inner_index)] >> ShiftOf(inner_index) & ((1 << bits) - 1);
  }
};

constexpr CodeMatrix KeyCodes(int head_dim, Width width) { return {Bits(width), kPageTokens, head_dim}; }
constexpr CodeMatrix ValueCodes(int head_dim, Width width) { return {Bits(width), head_dim, kPageTokens}; }

// The code that stands for the middle.
constexpr float CodeCentre(int bits) { return static_cast<float>((1 << bits) - 1) / 2; }

constexpr size_t KeySliceBytes(int head_dim, Width width) {
  if (width == Width::kFp16) return sizeof(Half) * kPageTokens * head_dim;
  return 2 * sizeof(Half) * head_dim + KeyCodes(head_dim, width).bytes();
}
constexpr size_t ValueSliceBytes(int head_dim, Width width) {
  if (width == Width::kFp16) return sizeof(Half) * kPageTokens * head_dim;
  return 2 * sizeof(Half) * kPageTokens + ValueCodes(head_dim, width).bytes();
}

}  // namespace stria
