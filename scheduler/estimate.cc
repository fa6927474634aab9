#include "scheduler/estimate.h"

#include <algorithm>

#include "base/check.h"

namespace stria {
namespace {

// Position of a width in LayerBytes' arrays.
int IndexOf(Width width) {
  switch (width) {
    case Width::kInt2: return 0;
    case Width::kInt4: return 1;
    case Width::kInt8: return 2;
    case Width::kFp16: return 3;
  }
  return 3;
}

Width WidthInForce(const std::vector<uint8_t>& bits, size_t layer, Width otherwise) {
  return layer < bits.size() && IsWidth(bits[layer]) ? static_cast<Width>(bits[layer]) : otherwise;
}

}  // namespace

std::vector<LayerWidths> WidthsOf(const CachePlan& plan, const WorkerHello& worker, const WorkerStatus& status) {
  std::vector<LayerWidths> widths(worker.layers.size());
  for (size_t layer = 0; layer < widths.size(); ++layer) {
    if (plan.follow_tiers) {
      widths[layer] = {WidthInForce(status.key_bits, layer, Width::kFp16), WidthInForce(status.value_bits, layer, Width::kFp16)};
    } else if (layer < plan.layers.size() && plan.layers[layer].kind != LayerAction::Kind::kLatent) {
      const Width guard = plan.widen ? WidthInForce(status.guard_bits, layer, Width::kInt2) : Width::kInt2;
      widths[layer] = {Wider(plan.layers[layer].keys, guard), Wider(plan.layers[layer].values, guard), plan.Holds(layer)};
    }
  }
  return widths;
}

std::vector<LayerWidths> WidestWidthsOf(const CachePlan& plan, const WorkerHello& worker) {
  std::vector<LayerWidths> widths(worker.layers.size());
  if (plan.follow_tiers) return widths;
  if (!plan.widen) return WidthsOf(plan, worker, WorkerStatus{});
  for (size_t layer = 0; layer < std::min(widths.size(), plan.layers.size()); ++layer) widths[layer].holds = plan.Holds(layer);
  return widths;
}

std::vector<LayerWidths> NarrowestWidthsOf(const CachePlan& plan, const WorkerHello& worker) {
  if (plan.follow_tiers) return std::vector<LayerWidths>(worker.layers.size(), {Width::kInt2, Width::kInt2});
  return WidthsOf(plan, worker, WorkerStatus{});
}

MemoryDemand CacheDemand(const WorkerHello& worker, const std::vector<LayerWidths>& widths, uint64_t tokens) {
  STRIA_CHECK(widths.size() == worker.layers.size());
  const uint64_t pages = tokens / kTokensPerPage;
  const uint64_t sinks = std::min<uint64_t>(pages, worker.sink_pages);
  MemoryDemand demand;
  for (size_t layer = 0; layer < widths.size(); ++layer) {
    if (!widths[layer].holds) continue;
    const LayerBytes& bytes = worker.layers[layer];
    demand.AddPages(bytes.ring, 1);
    demand.AddPages(bytes.key_page[IndexOf(Width::kFp16)], sinks);
    demand.AddPages(bytes.value_page[IndexOf(Width::kFp16)], sinks);
    demand.AddPages(bytes.key_page[IndexOf(widths[layer].keys)], pages - sinks);
    demand.AddPages(bytes.value_page[IndexOf(widths[layer].values)], pages - sinks);
  }
  return demand;
}

uint64_t StagingBytes(const WorkerHello& worker, uint64_t prompt_tokens) {
  const uint64_t bytes = prompt_tokens * worker.staging_bytes_per_token;
  return worker.staging_bytes_max > 0 ? std::min(bytes, worker.staging_bytes_max) : bytes;
}

uint64_t TokensAtEnd(uint64_t prompt_tokens, uint64_t new_tokens) {
  return prompt_tokens + (new_tokens > 0 ? new_tokens - 1 : 0);
}

uint64_t PeakFootprint(const WorkerHello& worker, const std::vector<LayerWidths>& widths, uint64_t prompt_tokens,
                       uint64_t new_tokens, uint64_t evicted) {
  MemoryDemand prefill = CacheDemand(worker, widths, prompt_tokens - evicted);
  prefill.AddBytes(StagingBytes(worker, prompt_tokens));
  return std::max(prefill.Footprint(), CacheDemand(worker, widths, TokensAtEnd(prompt_tokens, new_tokens) - evicted).Footprint());
}

}  // namespace stria
