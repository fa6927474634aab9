#include "eval/capacity/capacity.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "eval/capacity/model_shape.h"
#include "worker/cache_layout.h"
#include "worker/page_pool.h"

namespace stria {
namespace {

// Everything that `sequences` of `tokens` tokens hold at one width.
DemandList DemandOf(const CacheLayout& layout, Width width, uint32_t tokens, uint64_t sequences) {
  CachePlan plan;
  plan.follow_tiers = false;
  plan.layers.assign(layout.layers(), {.keys = width, .values = width});
  DemandList one, all;
  layout.AddRings(plan, one);
  layout.AddPages(plan, TierVector{}, 0, tokens / kPageTokens, one);
  for (const PageDemand& demand : one.demands()) all.Add(demand.page_bytes, demand.pages * sequences);
  return all;
}

uint64_t Bytes(const DemandList& list) {
  uint64_t sum = 0;
  for (const PageDemand& demand : list.demands()) sum += demand.page_bytes * demand.pages;
  return sum;
}

// The most sequences whose pages and one prompt's staging fit into `room`.
uint64_t MostContexts(const CacheLayout& layout, Width width, uint32_t tokens, uint64_t staging, uint64_t room) {
  const auto fits = [&](uint64_t sequences) {
    return PagePool::Footprint(DemandOf(layout, width, tokens, sequences).demands(), staging) <= room;
  };
  uint64_t least = 0, most = 1;
  while (fits(most)) {
    least = most;
    most *= 2;
  }
  while (most - least > 1) {
    const uint64_t middle = least + (most - least) / 2;
    (fits(middle) ? least : most) = middle;
  }
  return least;
}

}  // namespace

absl::StatusOr<ModelConfig> RankShape(const ModelConfig& model, int gpus) {
  if (gpus < 1 || model.heads % gpus != 0 || model.kv_heads % gpus != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(model.heads, " query heads over ", model.kv_heads, " KV heads do not divide over ", gpus, " GPUs"));
  }
  ModelConfig rank = model;
  rank.heads /= gpus;
  rank.kv_heads /= gpus;
  return rank;
}

absl::StatusOr<Capacity> PlanCapacity(const ModelConfig& model, const CapacityRequest& request) {
  STRIA_ASSIGN_OR_RETURN(const ModelConfig rank, RankShape(model, request.gpus));
  STRIA_ASSIGN_OR_RETURN(const CacheLayout layout, CacheLayout::Create(rank, request.sink_pages));
  Capacity result;
  result.parameters = ParameterCount(model);
  result.weight_bytes = static_cast<uint64_t>(static_cast<double>(result.parameters) * request.weight_bits / 8);
  result.gpu_weight_bytes = (result.weight_bytes + request.gpus - 1) / request.gpus;
  const uint64_t elements = layout.layer_elements() * layout.layers() * request.gpus;  // of one token, keys and values
  result.token_bytes = elements * sizeof(Half);
  for (int layer = 0; layer < layout.layers(); ++layer) result.ring_bytes += layout.ring_bytes(layer) * request.gpus;
  result.key_ring_bytes = result.ring_bytes / 2;
  result.gpu_staging_bytes = layout.staging_bytes_per_token() * request.context;
  const auto usable = static_cast<uint64_t>(static_cast<double>(request.gpu_bytes) * (1 - request.reserve));
  result.gpu_room_bytes = usable - std::min(usable, result.gpu_weight_bytes);
  for (const Width width : {Width::kFp16, Width::kInt8, Width::kInt4, Width::kInt2}) {
    const DemandList demand = DemandOf(layout, width, request.context, request.sequences);
    WidthCapacity& entry = result.widths.emplace_back();
    entry.width = width;
    entry.bits_per_element = 8.0 * static_cast<double>(layout.key_page_bytes(0, width) + layout.value_page_bytes(0, width)) /
                             static_cast<double>(layout.layer_elements() * kPageTokens);
    entry.payload_bytes = elements * request.context * request.sequences * Bits(width) / 8;
    entry.gpu_cache_bytes = Bytes(demand);
    entry.cache_bytes = entry.gpu_cache_bytes * request.gpus;
    entry.gpu_pool_bytes = PagePool::Footprint(demand.demands(), 0);
    entry.contexts = MostContexts(layout, width, request.context, result.gpu_staging_bytes, result.gpu_room_bytes);
  }
  return result;
}

double LatentRatio(const ModelConfig& model, int anchors, int rank, int rotary, double bits) {
  const double full = 2.0 * model.layers * model.kv_width() * Bits(Width::kFp16);
  return full / (anchors * (rank + rotary) * bits);
}

}  // namespace stria
