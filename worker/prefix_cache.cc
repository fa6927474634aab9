#include "worker/prefix_cache.h"

#include <algorithm>

namespace stria {
namespace {

bool SameWidths(const PageRow& a, const PageRow& b) {
  return std::equal(a.layers.begin(), a.layers.end(), b.layers.begin(), b.layers.end(),
                    [](const auto& x, const auto& y) { return x.widths == y.widths; });
}

}  // namespace

PrefixCache::PrefixCache(const CacheLayout& layout, PagePool& pool, uint64_t max_bytes)
    : layout_(layout), pool_(pool), max_bytes_(max_bytes) {}

bool PrefixCache::Serves(const PageRow& row, uint32_t page, const CachePlan& plan,
                         const TierVector& tiers) const {
  for (const PageRow::Layer& layer : row.layers) {
    const Widths have = layer.widths, want = layout_.PageWidths(plan, tiers, layer.layer, page);
    if (plan.follow_tiers ? Bits(have.keys) < Bits(want.keys) || Bits(have.values) < Bits(want.values)
                          : have != want)
      return false;
  }
  return true;
}

std::vector<PrefixHit> PrefixCache::Find(std::span<const PrefixKey> keys, const CachePlan& plan,
                                         const TierVector& tiers) const {
  Width narrowest = Width::kFp16;
  for (int i = 0; i < layout_.layers(); ++i) {
    if (!plan.Holds(i)) continue;
    narrowest = Narrower(narrowest, layout_.PageWidths(plan, tiers, i, layout_.sink_pages()).narrower());
  }
  std::vector<PrefixHit> hits;
  for (const PrefixKey& key : keys) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) break;
    const Entry* best = nullptr;
    for (const Entries::iterator& entry : found->second) {
      if (Bits(entry->row.ancestors) < Bits(narrowest)) continue;
      if (best != nullptr && entry->bytes >= best->bytes) continue;
      if (Serves(entry->row, static_cast<uint32_t>(hits.size()), plan, tiers)) best = &*entry;
    }
    if (best == nullptr) break;
    hits.push_back({best->id, &best->row});
  }
  return hits;
}

void PrefixCache::Use(std::span<const PrefixEntryId> chain) {
  ++stats_.lookups;
  stats_.hits += !chain.empty();
  stats_.hit_tokens += chain.size() * kPageTokens;
  Touch(chain);
}

void PrefixCache::Append(std::span<const PrefixKey> keys, std::span<const PageRow> rows,
                         std::vector<PrefixEntryId>& chain) {
  for (const PageRow& row : rows) chain.push_back(Insert(keys[chain.size()], row));
  Touch(chain);
  for (; stats_.bytes > max_bytes_; ++stats_.evictions) Remove(std::prev(entries_.end()));
}

void PrefixCache::Touch(std::span<const PrefixEntryId> chain) {
  for (size_t i = chain.size(); i-- > 0;) {
    const auto found = by_id_.find(chain[i]);
    if (found != by_id_.end()) entries_.splice(entries_.begin(), entries_, found->second);
  }
}

PrefixEntryId PrefixCache::Insert(const PrefixKey& key, const PageRow& row) {
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    const auto same = std::find_if(found->second.begin(), found->second.end(),
                                   [&](const auto& entry) { return SameWidths(entry->row, row); });
    if (same != found->second.end()) {
      const Entries::iterator entry = *same;
      if (Bits(entry->row.ancestors) >= Bits(row.ancestors)) return entry->id;
      Remove(entry);
    }
  }
  Entry& entry = entries_.emplace_front(Entry{next_id_++, key, row, 0});
  for (const PageRow::Layer& layer : row.layers)
    for (PageId page : {layer.keys, layer.values}) {
      pool_.Keep(page);
      entry.bytes += pool_.page_bytes(page);
    }
  by_key_[key].push_back(entries_.begin());
  by_id_[entry.id] = entries_.begin();
  ++stats_.entries;
  stats_.bytes += entry.bytes;
  return entry.id;
}

bool PrefixCache::EvictIdle() {
  if (pool_.idle_bytes() == 0) return false;
  for (;;) {
    const auto last = std::prev(entries_.end());
    if (pool_.idle(last->row.layers[0].keys)) {
      Remove(last);
      ++stats_.evictions;
      return true;
    }
    entries_.splice(entries_.begin(), entries_, last);  // used now, so not the least recently used
  }
}

void PrefixCache::Flush() {
  while (!entries_.empty()) Remove(entries_.begin());
}

void PrefixCache::Remove(Entries::iterator entry) {
  for (const PageRow::Layer& layer : entry->row.layers) {
    pool_.LetGo(layer.keys);
    pool_.LetGo(layer.values);
  }
  --stats_.entries;
  stats_.bytes -= entry->bytes;
  by_id_.erase(entry->id);
  const auto found = by_key_.find(entry->key);
  std::erase(found->second, entry);
  if (found->second.empty()) by_key_.erase(found);
  entries_.erase(entry);
}

}  // namespace stria
