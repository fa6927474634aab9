// Prefill attention on a GPU: what a launch is told. Contract: prefill_attention.h.
#pragma once

#include "kernels/format/page_format.h"

namespace stria {

// A block serves this many (row, query head) pairs of one KV head; they share its keys and values.
inline constexpr int kPrefillPairs = 16;
inline constexpr int kPrefillThreads = 128;

// All pointers are the device's, keys and values at 16-byte boundaries. Shapes as in PrefillAttentionArgs.
struct PrefillParams {
  AttentionShape shape;
  float q_scale = 0;  // log2(e) / √head_dim
  int query_begin = 0, query_end = 0;
  const float* q = nullptr;
  KvBlock keys, values;
  float* out = nullptr;

  int Pairs() const { return (query_end - query_begin) * shape.group(); }
  int Blocks() const { return (Pairs() + kPrefillPairs - 1) / kPrefillPairs; }  // for each KV head
};

}  // namespace stria
