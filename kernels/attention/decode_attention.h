// Decode attention: one query row per sequence over a striped cache, each page read at its own width.
#pragma once

#include <memory>
#include <span>

#include "kernels/format/page_format.h"
#include "kernels/target.h"

namespace stria {

// out = softmax(q Kᵀ / √head_dim) V per head over sealed pages and tail, GQA: query head h reads KV head h / group.
// q, out [heads, head_dim]. Plain loops in double over dequantised pages: the oracle of every faster path.
void DecodeAttentionReference(const AttentionShape& shape, const SequenceKv& kv, const float* q, float* out);

// The fast path. Plan is integer work on the host, Run moves bytes.
class DecodeAttention {
 public:
  // `threads`: size of the OpenMP teams that Run opens. Scratch grows in Plan only, never in Run.
  static std::unique_ptr<DecodeAttention> Create(const AttentionShape& shape, Target target, int threads);
  virtual ~DecodeAttention() = default;

  // tokens[i] = tokens of sequence i that Run will read. Splits long sequences at points that depend on their own length
  // only (so results never depend on neighbours or threads), and balances the pieces over threads.
  virtual void Plan(std::span<const int> tokens) = 0;

  // kv [sequences as planned]; q, out [sequences, heads, head_dim]. `next`, when given, is the next layer's kv: its first
  // pages are prefetched near the end. Partial results are merged in a fixed order.
  virtual void Run(const SequenceKv* kv, const float* q, float* out, const SequenceKv* next) = 0;
};

}  // namespace stria
