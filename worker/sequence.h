// One sequence as the engine holds it, from Start to its end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "proto/sequences.h"
#include "worker/prefill_cache.h"
#include "worker/prefill_plan.h"
#include "worker/prefix_cache.h"
#include "worker/sampler.h"
#include "worker/sequence_cache.h"

namespace stria {

struct Sequence {
  Sequence(StartSequence request, uint64_t arrival, uint32_t max_context)
      : start(std::move(request)),
        order(arrival),
        shape(ShapeOf(start)),
        careful(start.name.attempt > 0),
        sampler(start.sampling, start.prompt, start.delivered),
        next_index(start.delivered) {
    const uint64_t fed = prompt_tokens() + uint64_t{limit()} -
                         std::min(limit(), start.delivered + 1);  // the last token is never fed
    most_tokens = static_cast<uint32_t>(std::min<uint64_t>(fed, max_context)) - shape.evicted;
  }

  uint32_t prompt_tokens() const { return shape.tokens; }
  uint32_t kept_tokens() const { return shape.tokens - shape.evicted; }  // of the prompt, in the cache
  bool forced() const { return !start.forced.empty(); }
  // Token indices end here.
  uint32_t limit() const {
    return forced() ? static_cast<uint32_t>(start.forced.size()) : start.max_new_tokens;
  }
  PrefillProgress progress() const {
    return {prompt_tokens(), unit.layer, unit.begin, order, shape.shared};
  }
  static PromptShape ShapeOf(const StartSequence& start) {
    const auto tokens = static_cast<uint32_t>(start.prompt.size()), original = tokens - start.delivered;
    return {tokens, original, EvictedTokens(original, start.plan.keep_tokens)};
  }

  const StartSequence start;
  const uint64_t order;      // of arrival
  PromptShape shape;
  uint32_t most_tokens = 0;  // that its cache may come to hold
  bool careful;  // ran out of pages before: admitted only when all that it may take fits beside the others'
                 // all
  Sampler sampler;
  uint32_t next_index;   // of the next token to be chosen
  int32_t pending = -1;  // chosen, not yet fed

  std::unique_ptr<SequenceCache> cache;    // prefilling and running
  bool drawn = false;                      // to be shadowed, where there is room
  std::unique_ptr<SequenceCache> shadow;   // the same tokens at FP16; absent: it has none
  std::unique_ptr<PromptStaging> staging;  // prefilling
  PrefillUnit unit;                        // the next one

  std::optional<PrefixChain> prefix;   // absent: it shares nothing
  std::vector<PrefixEntryId> entries;  // of its sealed pages, in the prefix cache
};

}  // namespace stria
