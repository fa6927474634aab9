// How many bytes of a worker's pool a sequence takes. Exact integer arithmetic over what the worker said of its layers, so that
// the scheduler needs to know no page layout.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/sequences.h"

namespace stria {

inline constexpr uint32_t kTokensPerPage = 64;

struct LayerWidths {
  Width keys = Width::kFp16, values = Width::kFp16;
  friend bool operator==(const LayerWidths&, const LayerWidths&) = default;
};

// What a sequence holds at its two high-water marks.
struct Footprint {
  uint64_t prefill = 0;  // at the end of prefill: pages of the prompt, rings, and the staging buffers
  uint64_t end = 0;      // with its last token: all pages and rings, no staging
  uint64_t peak() const { return prefill > end ? prefill : end; }
};

// The widths at which a plan's pages are sealed: the tier vector in force for `auto` (FP16 before the first status), the
// plan's own otherwise. Layers that hold no plain pages are counted as FP16.
std::vector<LayerWidths> WidthsOf(const CachePlan& plan, const WorkerHello& worker, const WorkerStatus& status);

// Every layer at FP16: no tier vector can make a sequence larger than this.
std::vector<LayerWidths> WidestWidths(const WorkerHello& worker);

// Pages and rings of one sequence of `tokens` tokens, rounded up to whole pages; the first `sink_pages` pages are FP16.
// `widths` holds one entry for each of the worker's layers.
uint64_t CacheBytes(const WorkerHello& worker, const std::vector<LayerWidths>& widths, uint64_t tokens);

// Staging of a prompt while it prefills; `staging_bytes_max` (where not 0) is the most that the worker ever uses.
uint64_t StagingBytes(const WorkerHello& worker, uint64_t prompt_tokens);

Footprint EstimateFootprint(const WorkerHello& worker, const std::vector<LayerWidths>& widths, uint64_t prompt_tokens,
                            uint64_t new_tokens);

}  // namespace stria
