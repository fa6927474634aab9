#include "worker/prompt_eviction.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace stria {
namespace {

uint32_t Scored(const PromptShape& shape) { return shape.original - kObservationWindow; }

}  // namespace

void PromptEviction::Observe(const StagedPrompt& prompt, bool first, uint32_t begin, uint32_t end, const float* q) {
  const uint32_t scored = Scored(prompt.shape);
  STRIA_CHECK(prompt.shape.evicted > 0 && end <= prompt.shape.original);
  if (first) std::fill_n(prompt.votes, size_t{scored} * shape_.kv_heads, 0.0f);
  if (end <= scored) return;
  const uint32_t from = std::max(begin, scored);
  scorer_->Add({.query_begin = static_cast<int>(from),
                .query_end = static_cast<int>(end),
                .q = q + size_t{from - begin} * shape_.heads * shape_.head_dim,
                .keys = {prompt.keys, prompt.head_stride},
                .scored = static_cast<int>(scored)},
               prompt.votes);
}

void PromptEviction::Compact(const StagedPrompt& prompt) const {
  const uint32_t original = prompt.shape.original, evicted = prompt.shape.evicted;
  const uint32_t scored = Scored(prompt.shape), candidates = original - kEvictionUnit;
  const uint32_t chosen = candidates - evicted;
  const size_t dim = shape_.head_dim;
#pragma omp parallel for num_threads(threads_)
  for (int head = 0; head < shape_.kv_heads; ++head) {
    const std::vector<int32_t> stay = SelectKeys({prompt.votes + size_t{scored} * head, scored},
                                                 static_cast<int>(candidates), static_cast<int>(chosen));
    for (Half* rows : {prompt.keys + head * prompt.head_stride, prompt.values + head * prompt.head_stride}) {
      // Ascending, so no row is overwritten before it has moved.
      for (size_t i = 0; i < stay.size(); ++i)
        if (stay[i] != static_cast<int32_t>(i)) std::memcpy(rows + i * dim, rows + stay[i] * dim, dim * sizeof(Half));
      std::memmove(rows + chosen * dim, rows + candidates * dim, kEvictionUnit * dim * sizeof(Half));
      if (prompt.poison) std::fill_n(rows + (original - evicted) * dim, evicted * dim, Half{0xffff});
    }
  }
}

}  // namespace stria
