// SnapKV (Li et al. 2024, "SnapKV: LLM Knows What You are Looking for Before Generation"): which keys of a prompt stay.
// The queries of its last tokens, the observation window, vote. For each key before the window and each KV head
//   score = Σ over window queries and the query heads of the group of  softmax(q Kᵀ / √head_dim), causal,
// then the maximum over a neighbourhood of 7 keys, so that what surrounds a voted key stays with it. The best scores win.
// Window 32, kernel 7 and maximum pooling are the published settings on LongBench; the paper votes per query head and so
// keeps `group` copies, here the group's votes are summed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/format/page_format.h"
#include "kernels/target.h"

namespace stria {

inline constexpr int kObservationWindow = 32;
inline constexpr int kPoolingKernel = 7;

// Some rows of the window. Each sees the keys up to its own position.
struct ObservationArgs {
  int query_begin = 0, query_end = 0;  // positions, at most kObservationWindow of them
  const float* q = nullptr;            // [query_end - query_begin, heads, head_dim], after rotary embedding, unscaled
  KvBlock keys;                        // tokens [0, query_end) of all kv_heads
  int scored = 0;                      // keys that get a score; ≤ query_begin, so every row sees them
};

// Adds the rows' votes to scores [kv_heads, scored].
void AddObservationReference(const AttentionShape& shape, const ObservationArgs& args, double* scores);

class ObservationScorer {
 public:
  // OpenMP teams of `threads`; scratch is allocated here. Sums are added in one order whatever the threads.
  static std::unique_ptr<ObservationScorer> Create(const AttentionShape& shape, Target target, int threads);
  virtual ~ObservationScorer() = default;
  virtual void Add(const ObservationArgs& args, float* scores) = 0;
};

// Of one KV head's scores: pools them, and returns the `count` best among the first `candidates` keys in ascending order.
// The neighbourhood is cut at both ends of `scores`. Ties go to the earlier key; a NaN never wins. count ≤ candidates ≤
// scores.size().
std::vector<int32_t> SelectKeys(std::span<const float> scores, int candidates, int count);

}  // namespace stria
