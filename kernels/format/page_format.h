// What a page is: the keys, or the values, of 64 tokens of one layer, all KV heads, at one width.
// The byte layout behind a width is the kernels' own business (docs/formats.md draws it); everyone else asks for sizes here.
#pragma once

#include <cstddef>

#include "base/float16.h"
#include "base/width.h"

namespace stria {

inline constexpr int kPageTokens = 64;
inline constexpr int kMaxHeadDim = 256;

// Heads of one layer. Layers of one model may differ.
struct AttentionShape {
  int heads = 0;     // query heads
  int kv_heads = 0;  // divides heads
  int head_dim = 0;  // a multiple of 16, at most kMaxHeadDim
  int group() const { return heads / kv_heads; }
  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

// Bytes of one page, codes and scales, a multiple of 64. Pages start at 64-byte boundaries.
// At head_dim 64 a quantised page takes (bits + 0.5) bits per element.
size_t KeyPageBytes(const AttentionShape& shape, Width width);
size_t ValuePageBytes(const AttentionShape& shape, Width width);

// A sealed page. Immutable.
struct PageRef {
  const void* data = nullptr;
  Width width = Width::kFp16;
};

// Up to 64 tokens of unsealed keys or values: element (head, token, channel) at data[head * head_stride + token * head_dim + channel].
// Both the per-sequence ring (head_stride = 64 * head_dim) and a layer's prefill staging (head_stride = capacity * head_dim) are such blocks.
struct KvBlock {
  const Half* data = nullptr;
  ptrdiff_t head_stride = 0;
};

// Everything that decode attention reads of one sequence in one layer.
struct SequenceKv {
  const PageRef* key_pages = nullptr;    // [sealed_pages]
  const PageRef* value_pages = nullptr;  // [sealed_pages]
  int sealed_pages = 0;
  const Half* key_ring = nullptr;    // [kv_heads, 64, head_dim], slot = position mod 64
  const Half* value_tail = nullptr;  // [kv_heads, 64, head_dim]
  int tail = 0;                      // unsealed tokens, in slots [0, tail), tail ≤ 64
};

}  // namespace stria
