// What a sequence takes of a worker's pool, by exact integer arithmetic over what the worker said of its layers, so that the
// scheduler needs to know no page layout.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/sequences.h"
#include "scheduler/memory_demand.h"

namespace stria {

inline constexpr uint32_t kTokensPerPage = 64;

struct LayerWidths {
  Width keys = Width::kFp16, values = Width::kFp16;
  bool holds = true;  // false: it reads another layer's cache
  friend bool operator==(const LayerWidths&, const LayerWidths&) = default;
};

// The widths at which a plan's pages are sealed: the tier vector in force for `auto` (FP16 before the first status), the
// plan's own otherwise, widened to the guard widths in force where it may be. Latents are counted as FP16.
std::vector<LayerWidths> WidthsOf(const CachePlan& plan, const WorkerHello& worker, const WorkerStatus& status);

// The same when no tier vector, now or later, could make it more: `auto` and widened plans at FP16.
std::vector<LayerWidths> WidestWidthsOf(const CachePlan& plan, const WorkerHello& worker);

// The same when every tier vector may come to be: `auto` at INT2, widened plans at their own widths.
std::vector<LayerWidths> NarrowestWidthsOf(const CachePlan& plan, const WorkerHello& worker);

// Pages and rings of one sequence with `tokens` tokens in its cache. A page is there once its 64 tokens are; until then they
// are in the ring. The first `sink_pages` pages are FP16. `widths` holds one entry for each of the worker's layers.
MemoryDemand CacheDemand(const WorkerHello& worker, const std::vector<LayerWidths>& widths, uint64_t tokens);

// Staging of a prompt while it prefills; `staging_bytes_max` (where not 0) is the most that the worker ever uses.
uint64_t StagingBytes(const WorkerHello& worker, uint64_t prompt_tokens);

// Tokens in the cache at the end: the last one generated is never fed.
uint64_t TokensAtEnd(uint64_t prompt_tokens, uint64_t new_tokens);

// Bytes of an otherwise empty pool that a sequence takes at the larger of its two high-water marks: at the end of prefill, with
// staging, and at its own end, without. The cache never holds the `evicted` tokens of the prompt, staging does.
uint64_t PeakFootprint(const WorkerHello& worker, const std::vector<LayerWidths>& widths, uint64_t prompt_tokens,
                       uint64_t new_tokens, uint64_t evicted);

}  // namespace stria
