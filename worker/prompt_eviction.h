// Eviction of one prompt while it prefills (DESIGN §3): the rows of the observation window vote as their chunks pass, and
// when the last layer that reads a staging has seen the whole prompt, the staged keys and values are closed up to those that stay,
// per KV head. Keys were rotated by their own positions, so closing up moves nothing that attention sees.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/evict/snapkv.h"
#include "worker/cache_layout.h"
#include "worker/prefill_plan.h"

namespace stria {

// One layer's staging of a prompt.
struct StagedPrompt {
  PromptShape shape;
  Half* keys = nullptr;           // [kv_heads, head_stride / head_dim, head_dim]
  Half* values = nullptr;         // likewise
  ptrdiff_t head_stride = 0;
  float* votes = nullptr;         // [kv_heads, shape.original − kObservationWindow] at most
  bool poison = false;            // tests: what no longer counts reads as NaN
};

class PromptEviction {
 public:
  PromptEviction(const CacheLayout& layout, Target target, int threads)
      : shape_(layout.shape()), threads_(threads), scorer_(ObservationScorer::Create(shape_, target, threads)) {}

  // Queries q [end - begin, heads, head_dim] of rows [begin, end) of the original prompt, whose keys are staged. `first`: the
  // first chunk of the first layer that reads this staging.
  void Observe(const StagedPrompt& prompt, bool first, uint32_t begin, uint32_t end, const float* q);
  // The whole window has voted, in every layer that reads this staging: of the original prompt's tokens
  // original − evicted stay, in order, the last 64 among them.
  void Compact(const StagedPrompt& prompt) const;

 private:
  const AttentionShape shape_;
  const int threads_;
  std::unique_ptr<ObservationScorer> scorer_;
};

}  // namespace stria
