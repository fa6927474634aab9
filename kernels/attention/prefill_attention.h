// Prefill attention: many query rows of one prompt over that layer's FP16 staging, causal.
#pragma once

#include <memory>

#include "kernels/format/page_format.h"
#include "kernels/target.h"

namespace stria {

struct PrefillAttentionArgs {
  int query_begin = 0, query_end = 0;  // positions of the query rows in the staged tokens
  const float* q = nullptr;            // [query_end - query_begin, heads, head_dim]
  KvBlock keys, values;                // tokens [0, query_end) of all kv_heads are there
  float* out = nullptr;                // [query_end - query_begin, heads, head_dim]
};

// Row i attends to tokens [0, query_begin + i]. Double loops: the oracle.
void PrefillAttentionReference(const AttentionShape& shape, const PrefillAttentionArgs& args);

class PrefillAttention {
 public:
  // Blocked for the cache hierarchy; OpenMP teams of `threads`. Scratch is allocated here, bounded, none in Run.
  static std::unique_ptr<PrefillAttention> Create(const AttentionShape& shape, Target target, int threads);
  virtual ~PrefillAttention() = default;
  virtual void Run(const PrefillAttentionArgs& args) = 0;
};

}  // namespace stria
