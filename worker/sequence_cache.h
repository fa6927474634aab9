// The cache of one sequence: block tables of sealed pages per layer, and the FP16 ring of its last 64 tokens.
//
// The ring holds token p in slot p mod 64. It is tail and reference at once: the tokens behind the last
// sealed page are read from it, and sealing does not clear it, so it always ends with the last 64 keys as
// they were before any tier touched them.
//
// Eviction leaves fewer tokens than positions. It takes multiples of 64, so slots are as without it.
// A layer that inherits has neither pages nor ring: its anchor's are read.
//
// Pages are allocated before they are sealed (a prompt's at admission, the next one before the step that
// fills it), so running out is known before any arithmetic starts. The first pages may be shared ones, which
// others sealed: their tokens are not computed, so they never enter the ring. The owner's thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/format/page_format.h"
#include "kernels/format/seal.h"
#include "proto/cache_report.h"
#include "proto/sequences.h"
#include "proto/tiers.h"
#include "worker/cache_layout.h"
#include "worker/page_pool.h"

namespace stria {

// Pages that all sequences hold together, each once, by WidthIndex.
struct PageCounts {
  uint64_t by_width[4] = {};
};

class SequenceCache {
 public:
  // Keeps references to all four.
  SequenceCache(const CacheLayout& layout, PagePool& pool, PageCounts& counts, const CachePlan& plan);
  ~SequenceCache();  // every page returns
  SequenceCache(const SequenceCache&) = delete;
  SequenceCache& operator=(const SequenceCache&) = delete;

  // Makes this row, which is in use or kept, the sequence's next page. Before AllocatePrompt.
  void Share(const PageRow& row);
  // Rings, and the other pages that a prompt of so many tokens fills, at the widths in force. False: the pool
  // is full; what was taken meanwhile returns with this object.
  bool AllocatePrompt(uint32_t tokens, const TierVector& tiers, Placement placement);
  // The page that the next token completes, in every layer. Does nothing unless the next token completes one
  // and none is there.
  bool AllocateNextPage(const TierVector& tiers, Placement placement);

  const CachePlan& plan() const { return plan_; }
  uint32_t tokens() const { return tokens_; }  // in the cache
  uint32_t positions() const { return tokens_ + evicted_; }  // of the context: the next token's position
  uint32_t tail() const { return tokens_ - sealed_pages_ * kPageTokens; }
  uint32_t sealed_pages() const { return sealed_pages_; }
  uint32_t shared_pages() const { return shared_pages_; }
  // Keys in the ring: slots [0, ring_keys()). Shared pages end where a ring begins.
  uint32_t ring_keys() const {
    return std::min<uint32_t>(tokens_ - shared_pages_ * kPageTokens, kPageTokens);
  }
  uint64_t bytes() const { return bytes_; }  // pages and rings held, shared ones in full

  // Of layers that hold.
  Half* key_ring(int layer) const { return layers_[layer].ring; }
  Half* value_tail(int layer) const { return layers_[layer].ring + layout_.ring_elements(); }
  const std::vector<PageRef>& key_pages(int layer) const {
    return layers_[layer].keys.pages;
  }  // sealed ones come first
  const std::vector<PageRef>& value_pages(int layer) const { return layers_[layer].values.pages; }
  // What attention of any layer reads if `tokens() + appended` tokens are there.
  SequenceKv View(int layer, int appended) const;

  // A sealed page as others may share it.
  PageRow Row(uint32_t page) const;

  // Writes one layer's page from 64 FP16 tokens; not a shared one. Safe from several threads for different
  // (layer, page).
  void SealKeyPage(Target target, int layer, uint32_t page, KvBlock tokens);
  void SealValuePage(Target target, int layer, uint32_t page, KvBlock tokens);

  // The pages of the prompt's `tokens` that stay are written and the last are in the rings, in all layers.
  void FinishPrompt(uint32_t tokens, uint32_t evicted);
  // One more token is in the rings of all layers.
  void CountToken() { ++tokens_; }
  // The full tail was written to its page in all layers.
  void CountPage();

  KvUsage Usage() const;
  SequenceHeld Held() const;                   // name and phase are the caller's
  std::vector<LayerPages> PageWidths() const;  // of sealed pages
  // Of what the next token attends to, itself included: the share that lies in pages narrower than FP16, over layers, keys and values.
  double QuantisedShare() const;
  // Adds what this cache holds, and what it takes until it has so many tokens under these tiers.
  void AddHeld(DemandList& list) const;
  void AddGrowth(uint32_t tokens, const TierVector& tiers, DemandList& list) const;

 private:
  struct Stream {  // keys or values of one layer
    std::vector<PageRef> pages;
    std::vector<PageId> ids;
    PageRun run;
  };
  struct Layer {
    Stream keys, values;
    Half* ring = nullptr;
    PageId ring_id = 0;
  };

  bool AllocatePages(uint32_t begin, uint32_t end, uint32_t expected, const TierVector& tiers,
                     Placement placement);
  bool Append(Stream& stream, size_t bytes, Width width, uint32_t expected, Placement placement);
  void Add(Stream& stream, PageId id, size_t bytes, Width width);
  Widths WidthsOf(int layer, uint32_t page) const;
  Width NarrowestOf(uint32_t page) const;  // of all layers

  const CacheLayout& layout_;
  PagePool& pool_;
  PageCounts& counts_;
  const CachePlan& plan_;
  std::vector<Layer> layers_;
  PageRun ring_run_;
  uint32_t tokens_ = 0, sealed_pages_ = 0, shared_pages_ = 0, evicted_ = 0;
  uint64_t bytes_ = 0;
  std::vector<Width> ancestors_;         // PageRow::ancestors of the sealed pages
  Width next_ancestors_ = Width::kFp16;  // of what is computed now
};

}  // namespace stria
