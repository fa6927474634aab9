#include "worker/sequence_cache.h"

#include <algorithm>

#include "base/check.h"

namespace stria {

SequenceCache::SequenceCache(const CacheLayout& layout, PagePool& pool, PageCounts& counts,
                             const CachePlan& plan)
    : layout_(layout), pool_(pool), counts_(counts), plan_(plan), layers_(layout.layers()) {}

SequenceCache::~SequenceCache() {
  for (Layer& layer : layers_) {
    for (Stream* stream : {&layer.keys, &layer.values}) {
      for (size_t i = 0; i < stream->ids.size(); ++i)
        if (pool_.Unref(stream->ids[i])) --counts_.by_width[WidthIndex(stream->pages[i].width)];
      pool_.EndRun(stream->run);
    }
    if (layer.ring != nullptr) pool_.Unref(layer.ring_id);
  }
  pool_.EndRun(ring_run_);
}

void SequenceCache::Share(const PageRow& row) {
  STRIA_CHECK(tokens_ == 0 && layers_[0].keys.ids.size() == shared_pages_);
  const auto share = [&](Stream& stream, PageId id, Width width) {
    if (pool_.Ref(id)) ++counts_.by_width[WidthIndex(width)];
    Add(stream, id, pool_.page_bytes(id), width);
  };
  for (const PageRow::Layer& page : row.layers) {
    STRIA_CHECK(plan_.Holds(page.layer));
    share(layers_[page.layer].keys, page.keys, page.widths.keys);
    share(layers_[page.layer].values, page.values, page.widths.values);
  }
  ancestors_.push_back(row.ancestors);
  next_ancestors_ = Narrower(next_ancestors_, Narrower(row.ancestors, NarrowestOf(shared_pages_)));
  ++shared_pages_;
}

bool SequenceCache::AllocatePrompt(uint32_t tokens, const TierVector& tiers, Placement placement) {
  for (int i = 0; i < layout_.layers(); ++i) {
    if (!plan_.Holds(i)) continue;
    const auto id = pool_.Allocate(layout_.ring_bytes(i), ring_run_, layout_.layers() - i, placement);
    if (!id) return false;
    layers_[i].ring_id = *id;
    layers_[i].ring = reinterpret_cast<Half*>(pool_.data(*id));
    bytes_ += layout_.ring_bytes(i);
  }
  const uint32_t pages = tokens / kPageTokens;
  return AllocatePages(0, pages, pages, tiers, placement);
}

bool SequenceCache::AllocateNextPage(const TierVector& tiers, Placement placement) {
  const uint32_t pages = (tokens_ + 1) / kPageTokens;
  return AllocatePages(sealed_pages_, pages, kGrowthRun, tiers, placement);
}

bool SequenceCache::AllocatePages(uint32_t begin, uint32_t end, uint32_t expected, const TierVector& tiers,
                                  Placement placement) {
  // Neighbours of a first page that stays FP16 are of no use to the narrower ones behind it: places kept for them would open slabs that
  // nothing else fills.
  const auto neighbours = [&](uint32_t page) {
    const uint32_t soon = expected - (page - begin);
    return page < layout_.sink_pages() ? std::min(soon, layout_.sink_pages() - page) : soon;
  };
  for (int i = 0; i < layout_.layers(); ++i) {
    if (!plan_.Holds(i)) continue;
    Layer& layer = layers_[i];
    // A page that an earlier, failed attempt got for this layer is still there.
    for (auto page = static_cast<uint32_t>(layer.keys.ids.size()); page < end; ++page) {
      const Width width = layout_.PageWidths(plan_, tiers, i, page).keys;
      if (!Append(layer.keys, layout_.key_page_bytes(i, width), width, neighbours(page), placement))
        return false;
    }
    for (auto page = static_cast<uint32_t>(layer.values.ids.size()); page < end; ++page) {
      const Width width = layout_.PageWidths(plan_, tiers, i, page).values;
      if (!Append(layer.values, layout_.value_page_bytes(i, width), width, neighbours(page), placement))
        return false;
    }
  }
  return true;
}

bool SequenceCache::Append(Stream& stream, size_t bytes, Width width, uint32_t expected,
                           Placement placement) {
  const auto id = pool_.Allocate(bytes, stream.run, expected, placement);
  if (!id) return false;
  ++counts_.by_width[WidthIndex(width)];
  Add(stream, *id, bytes, width);
  return true;
}

void SequenceCache::Add(Stream& stream, PageId id, size_t bytes, Width width) {
  stream.ids.push_back(id);
  stream.pages.push_back({.data = pool_.data(id), .width = width});
  bytes_ += bytes;
}

Widths SequenceCache::WidthsOf(int layer, uint32_t page) const {
  return {layers_[layer].keys.pages[page].width, layers_[layer].values.pages[page].width};
}

Width SequenceCache::NarrowestOf(uint32_t page) const {
  Width narrowest = Width::kFp16;
  for (int i = 0; i < layout_.layers(); ++i)
    if (plan_.Holds(i)) narrowest = Narrower(narrowest, WidthsOf(i, page).narrower());
  return narrowest;
}

PageRow SequenceCache::Row(uint32_t page) const {
  PageRow row{.layers = {}, .ancestors = ancestors_[page]};
  for (int i = 0; i < layout_.layers(); ++i) {
    if (!plan_.Holds(i)) continue;
    row.layers.push_back({i, layers_[i].keys.ids[page], layers_[i].values.ids[page], WidthsOf(i, page)});
  }
  return row;
}

SequenceKv SequenceCache::View(int layer, int appended) const {
  const auto anchor = static_cast<int>(plan_.Anchor(layer));
  const Layer& l = layers_[anchor];
  return {.key_pages = l.keys.pages.data(),
          .value_pages = l.values.pages.data(),
          .sealed_pages = static_cast<int>(sealed_pages_),
          .key_ring = key_ring(anchor),
          .value_tail = value_tail(anchor),
          .tail = static_cast<int>(tail()) + appended};
}

void SequenceCache::SealKeyPage(Target target, int layer, uint32_t page, KvBlock tokens) {
  const Stream& keys = layers_[layer].keys;
  SealKeys(target, layout_.shape(), keys.pages[page].width, tokens, pool_.data(keys.ids[page]));
}

void SequenceCache::SealValuePage(Target target, int layer, uint32_t page, KvBlock tokens) {
  const Stream& values = layers_[layer].values;
  SealValues(target, layout_.shape(), values.pages[page].width, tokens, pool_.data(values.ids[page]));
}

void SequenceCache::FinishPrompt(uint32_t tokens, uint32_t evicted) {
  static_assert(kEvictionUnit == kPageTokens);
  STRIA_CHECK(tokens_ == 0 && layers_[0].keys.ids.size() == tokens / kPageTokens && evicted % kEvictionUnit == 0);
  tokens_ = tokens;
  evicted_ = evicted;
  sealed_pages_ = tokens / kPageTokens;
  // A prompt attends in full precision to all of itself but its shared pages; what comes after it, to pages.
  ancestors_.resize(sealed_pages_, next_ancestors_);
  for (uint32_t page = shared_pages_; page < sealed_pages_; ++page)
    next_ancestors_ = Narrower(next_ancestors_, NarrowestOf(page));
}

void SequenceCache::CountPage() {
  ancestors_.push_back(next_ancestors_);
  next_ancestors_ = Narrower(next_ancestors_, NarrowestOf(sealed_pages_));
  ++sealed_pages_;
}

KvUsage SequenceCache::Usage() const {
  KvUsage usage{.bytes = bytes_, .tokens = tokens_};
  usage.cached_tokens = uint64_t{shared_pages_} * kPageTokens;
  uint64_t holding = 0;
  for (int i = 0; i < layout_.layers(); ++i) holding += plan_.Holds(i);
  const uint64_t per_token = holding * layout_.layer_elements(), elements = tokens_ * per_token;
  usage.fp16_bytes = uint64_t{positions()} * layout_.layers() * layout_.layer_elements() * sizeof(Half);
  if (elements == 0) return usage;
  const uint64_t per_page = layout_.ring_elements();
  uint64_t bits = uint64_t{tail()} * per_token * 16, guard_bits = 0;
  for (int i = 0; i < layout_.layers(); ++i)
    for (uint32_t page = 0; plan_.Holds(i) && page < sealed_pages_; ++page) {
      const int held = Bits(layers_[i].keys.pages[page].width) + Bits(layers_[i].values.pages[page].width);
      bits += per_page * held;
      if (plan_.widen && page >= layout_.sink_pages())
        guard_bits += per_page * (held - Bits(plan_.layers[i].keys) - Bits(plan_.layers[i].values));
    }
  usage.payload_bits = static_cast<double>(bits) / static_cast<double>(elements);
  usage.guard_bits = static_cast<double>(guard_bits) / static_cast<double>(elements);
  usage.bits_per_element = static_cast<double>(bytes_) * 8 / static_cast<double>(elements);
  return usage;
}

SequenceHeld SequenceCache::Held() const {
  SequenceHeld held;
  held.tokens = tokens_;
  held.positions = positions();
  held.tail = tail();
  held.ring_keys = tokens_ == 0 ? 0 : ring_keys();  // none while the prompt is computed
  held.bytes = bytes_;
  held.fp16_bytes = Usage().fp16_bytes;
  for (int i = 0; i < layout_.layers(); ++i) {
    if (layers_[i].ring == nullptr) continue;
    held.ring_bytes += layout_.ring_bytes(i);
    for (uint32_t page = 0; page < sealed_pages_; ++page) {
      const Width keys = layers_[i].keys.pages[page].width, values = layers_[i].values.pages[page].width;
      held.page_bytes[WidthIndex(keys)] += layout_.key_page_bytes(i, keys);
      held.page_bytes[WidthIndex(values)] += layout_.value_page_bytes(i, values);
    }
  }
  return held;
}

std::vector<LayerPages> SequenceCache::PageWidths() const {
  std::vector<LayerPages> all(layout_.layers());
  for (int i = 0; i < layout_.layers(); ++i) {
    if (layers_[i].ring == nullptr) continue;
    for (uint32_t page = 0; page < sealed_pages_; ++page) {
      all[i].keys.push_back(layers_[i].keys.pages[page].width);
      all[i].values.push_back(layers_[i].values.pages[page].width);
    }
  }
  return all;
}

double SequenceCache::QuantisedShare() const {
  uint64_t narrow = 0, streams = 0;
  for (const Layer& layer : layers_) {
    if (layer.ring == nullptr) continue;
    for (const Stream* stream : {&layer.keys, &layer.values}) {
      ++streams;
      for (uint32_t page = 0; page < sealed_pages_; ++page) narrow += stream->pages[page].width != Width::kFp16;
    }
  }
  return static_cast<double>(narrow * kPageTokens) / static_cast<double>(streams * (tokens_ + 1));
}

void SequenceCache::AddHeld(DemandList& list) const {
  for (int i = 0; i < layout_.layers(); ++i) {
    if (layers_[i].ring != nullptr) list.Add(layout_.ring_bytes(i), 1);
    for (const PageRef& page : layers_[i].keys.pages) list.Add(layout_.key_page_bytes(i, page.width), 1);
    for (const PageRef& page : layers_[i].values.pages) list.Add(layout_.value_page_bytes(i, page.width), 1);
  }
}

void SequenceCache::AddGrowth(uint32_t tokens, const TierVector& tiers, DemandList& list) const {
  const auto held = static_cast<uint32_t>(layers_[0].keys.ids.size());
  layout_.AddPages(plan_, tiers, held, std::max(held, tokens / kPageTokens), list);
}

}  // namespace stria
