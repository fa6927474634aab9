// One thread's share of decode attention: one KV head over a run of pages. Compiled once per target.
#pragma once

#include "kernels/format/page_format.h"
#include "kernels/simd/simd.h"

namespace stria {

inline constexpr int kMaxGroup = 16;
inline constexpr int kChunkPages = 4;  // pages whose scores share one softmax step

// A run of pages of one KV head. The tail, if any, follows the pages.
struct KvRun {
  const PageRef* key_pages = nullptr;    // [pages]
  const PageRef* value_pages = nullptr;  // [pages]
  int pages = 0;
  int kv_head = 0;
  const Half* key_tail = nullptr;    // [tail, head_dim], already at kv_head
  const Half* value_tail = nullptr;  // [tail, head_dim]
  int tail = 0;
};

struct DecodeRunArgs {
  int head_dim = 0;
  int group = 0;             // query heads that read this KV head
  const float* q = nullptr;  // [group, head_dim]
  float q_scale = 0;         // log2(e) / √head_dim
  KvRun run;
  KvRun ahead;  // what this thread reads next: prefetched while the last pages of `run` are worked on
  float* scores = nullptr;   // scratch [group, kChunkPages · 64]
  float* partial = nullptr;  // [group, PartialFloats]: Σ p·v [head_dim], Σ p, max; p = 2^(score − max)
};

constexpr int PartialFloats(int head_dim) { return head_dim + 16; }

// Runs of one KV head, in their order.
struct MergeRunsArgs {
  int head_dim = 0;
  int group = 0;
  int runs = 0;
  const float* partials = nullptr;  // of the first run, [group, PartialFloats]
  size_t stride = 0;                // floats from one run's partials to the next one's
  float* out = nullptr;             // [group, head_dim]
};

STRIA_DECLARE_TARGETS(void, MergeRuns, (const MergeRunsArgs& args))
STRIA_DECLARE_TARGETS(void, DecodeRun, (const DecodeRunArgs& args))

}  // namespace stria
