#include "worker/cache_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stria {

void DemandList::Add(size_t page_bytes, uint64_t pages) {
  if (pages == 0) return;
  for (PageDemand& demand : demands_) {
    if (demand.page_bytes != page_bytes) continue;
    demand.pages += pages;
    return;
  }
  demands_.push_back({page_bytes, pages});
}

absl::StatusOr<CacheLayout> CacheLayout::Create(const ModelConfig& model, uint32_t sink_pages) {
  if (model.head_dim <= 0 || model.head_dim % 16 != 0 || model.kv_heads <= 0 ||
      model.heads % model.kv_heads != 0)
    return absl::InvalidArgumentError(absl::StrCat(
        "no cache pages for ", model.heads, " query heads over ", model.kv_heads, " KV heads of ",
        model.head_dim, " channels: heads must divide, channels be a multiple of 16"));
  CacheLayout layout;
  layout.shape_ = {.heads = model.heads, .kv_heads = model.kv_heads, .head_dim = model.head_dim};
  layout.sink_pages_ = sink_pages;
  layout.residual_bytes_per_token_ = uint64_t(model.hidden) * sizeof(float);
  layout.staging_bytes_per_token_ =
      layout.residual_bytes_per_token_ + uint64_t(model.kv_heads) * sizeof(float) +
      uint64_t(2) * model.kv_width() * sizeof(Half);
  LayerBytes bytes;
  for (Width width : kAllWidths) {
    bytes.key_page[WidthIndex(width)] = static_cast<uint32_t>(KeyPageBytes(layout.shape_, width));
    bytes.value_page[WidthIndex(width)] = static_cast<uint32_t>(ValuePageBytes(layout.shape_, width));
  }
  bytes.ring = static_cast<uint32_t>(2 * layout.ring_elements() * sizeof(Half));
  if (bytes.ring > kSlabBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("a ring of ", bytes.ring, " bytes per layer is larger than a slab of ", kSlabBytes));
  layout.bytes_.assign(model.layers, bytes);
  return layout;
}

void CacheLayout::AddPages(const CachePlan& plan, const TierVector& tiers, uint32_t begin, uint32_t end,
                           DemandList& list) const {
  const uint32_t sinks = std::clamp(sink_pages_, begin, std::max(begin, end));
  for (int layer = 0; layer < layers(); ++layer) {
    if (!plan.Holds(layer)) continue;
    list.Add(key_page_bytes(layer, Width::kFp16), sinks - begin);
    list.Add(value_page_bytes(layer, Width::kFp16), sinks - begin);
    if (end <= sinks) continue;
    const Widths widths = PageWidths(plan, tiers, layer, sinks);
    list.Add(key_page_bytes(layer, widths.keys), end - sinks);
    list.Add(value_page_bytes(layer, widths.values), end - sinks);
  }
}

void CacheLayout::AddRings(const CachePlan& plan, DemandList& list) const {
  for (int layer = 0; layer < layers(); ++layer)
    if (plan.Holds(layer)) list.Add(ring_bytes(layer), 1);
}

}  // namespace stria
