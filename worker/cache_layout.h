// What the cache of a model takes, layer by layer: the arithmetic behind admission, accounting and usage.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/format/page_format.h"
#include "model/model_config.h"
#include "proto/sequences.h"
#include "proto/tiers.h"
#include "worker/page_pool.h"

namespace stria {

// Index of a width in LayerBytes and EngineStats: INT2, INT4, INT8, FP16.
constexpr int WidthIndex(Width width) {
  return width == Width::kInt2 ? 0 : width == Width::kInt4 ? 1 : width == Width::kInt8 ? 2 : 3;
}

constexpr Width Narrower(Width a, Width b) { return Bits(a) < Bits(b) ? a : b; }

struct Widths {
  Width keys = Width::kFp16, values = Width::kFp16;
  Width narrower() const { return Narrower(keys, values); }
  friend bool operator==(const Widths&, const Widths&) = default;
};

// One page number of a sequence, in all layers.
struct PageRow {
  struct Layer {
    int layer = 0;
    PageId keys = 0, values = 0;
    Widths widths;
  };
  std::vector<Layer> layers;  // those that have a cache of their own, in order
  // The narrowest page that its tokens attended to while they were computed, or that those were computed over
  // in their turn. FP16: what a prompt without shared pages has.
  Width ancestors = Width::kFp16;
};

// Demands for pages, one entry per size.
class DemandList {
 public:
  void Add(size_t page_bytes, uint64_t pages);
  const std::vector<PageDemand>& demands() const { return demands_; }

 private:
  std::vector<PageDemand> demands_;
};

class CacheLayout {
 public:
  // InvalidArgument: a head size that no page format takes, or a page larger than a slab.
  static absl::StatusOr<CacheLayout> Create(const ModelConfig& model, uint32_t sink_pages);

  const AttentionShape& shape() const { return shape_; }
  int layers() const { return static_cast<int>(bytes_.size()); }
  uint32_t sink_pages() const { return sink_pages_; }
  const std::vector<LayerBytes>& layer_bytes() const { return bytes_; }
  size_t key_page_bytes(int layer, Width width) const { return bytes_[layer].key_page[WidthIndex(width)]; }
  size_t value_page_bytes(int layer, Width width) const {
    return bytes_[layer].value_page[WidthIndex(width)];
  }
  size_t ring_bytes(int layer) const { return bytes_[layer].ring; }
  // Keys, or values, that one ring or tail holds.
  size_t ring_elements() const { return size_t(kPageTokens) * shape_.kv_heads * shape_.head_dim; }
  // Elements of one token in one layer, keys and values.
  uint64_t layer_elements() const { return uint64_t(2) * shape_.kv_heads * shape_.head_dim; }
  // What a prompt stages while it prefills: one layer's FP16 keys and values of each token and its votes for
  // eviction, and the residual stream of those that are computed.
  uint64_t staging_bytes_per_token() const { return staging_bytes_per_token_; }
  uint64_t StagingBytes(uint32_t tokens, uint32_t shared_tokens) const {
    return tokens * staging_bytes_per_token_ - shared_tokens * residual_bytes_per_token_;
  }

  // Widths of page number `page` of a layer, sealed under these tiers.
  Widths PageWidths(const CachePlan& plan, const TierVector& tiers, int layer, uint32_t page) const {
    if (page < sink_pages_) return {};
    if (plan.follow_tiers) return {tiers.layers[layer].keys, tiers.layers[layer].values};
    const LayerAction& action = plan.layers[layer];
    if (!plan.widen) return {action.keys, action.values};
    const Width guard = tiers.layers[layer].guard_plain;
    return {Wider(action.keys, guard), Wider(action.values, guard)};
  }

  // Adds pages [begin, end) of every layer that has a cache of its own.
  void AddPages(const CachePlan& plan, const TierVector& tiers, uint32_t begin, uint32_t end,
                DemandList& list) const;
  void AddRings(const CachePlan& plan, DemandList& list) const;

 private:
  AttentionShape shape_;
  uint32_t sink_pages_ = 0;
  uint64_t staging_bytes_per_token_ = 0, residual_bytes_per_token_ = 0;
  std::vector<LayerBytes> bytes_;
};

}  // namespace stria
