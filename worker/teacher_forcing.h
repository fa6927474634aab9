// Text fed token by token through decode steps, once under each cache, side by side: what evaluation
// compares. Prefilling instead would show nothing, because a prompt attends in full precision.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/target.h"
#include "model/transformer/transformer.h"
#include "proto/sequences.h"
#include "proto/telemetry.h"

namespace stria {

// A cache to compare. The plan is not one that follows tiers.
struct CacheVariant {
  std::string name;
  CachePlan plan;
  uint32_t sink_pages = 1;
  bool exact_attention = false;  // by the reference in double (kernels/attention), slow: what the fast paths are compared with
};

// logits [variants, vocab] after tokens [0, position] of a text: they predict token position + 1. Positions
// of one text come in order; different texts come from different threads.
using LogitsSink = std::function<void(size_t text, uint32_t position, std::span<const float> logits)>;

// A canary firing at `position` of a text, on its first variant alone. Readings are at the default reference length.
using CanarySink = std::function<void(size_t text, uint32_t position, const CanaryFrame& frame)>;

struct TeacherForcingOptions {
  Target target = BestTarget();
  int threads = 1;
  int max_rows = 64;  // that the transformer was made for; variants must not be more
  // With a sink the canary fires at every step from position `canary_from` on, for one text of the group after the other.
  CanarySink canary = {};
  uint32_t canary_from = 0;
};

absl::Status TeacherForce(Transformer& transformer, const TeacherForcingOptions& options,
                          std::span<const std::vector<int32_t>> texts, std::span<const CacheVariant> variants,
                          const LogitsSink& sink);

// How many of a text's first `tokens` tokens lie in pages of the plan's widths.
uint32_t QuantisedTokens(const CacheVariant& variant, uint32_t tokens);

// The same widths in all layers.
CachePlan UniformPlan(int layers, Width keys, Width values);

}  // namespace stria
