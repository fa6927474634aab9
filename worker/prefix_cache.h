// Sealed pages that outlive their sequences, so that a later request with the same beginning need not compute
// it again (DESIGN §3, "Sharing"). An entry is one page number of a sequence in all layers.
//
// Entries keep their pages in the pool (PagePool::Keep); sequences use them by reference. What no sequence
// uses is idle, and the engine has it evicted whenever an allocation would fail: cached pages are free memory
// that happens to hold something. Whoever uses an entry uses those before it in its chain after it, so the
// least recently used, which goes first, is the end of a chain and not its beginning.
//
// The same tokens may have several entries, of different widths. Pure bookkeeping; the engine's thread owns
// it.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "proto/prefix_chain.h"
#include "proto/sequences.h"
#include "proto/tiers.h"
#include "worker/cache_layout.h"
#include "worker/page_pool.h"
#include "worker/prefix_stats.h"

namespace stria {

static_assert(kPrefixPageTokens == kPageTokens);
using PrefixEntryId = uint64_t;  // never used twice

struct PrefixHit {
  PrefixEntryId entry = 0;
  const PageRow* row = nullptr;  // until the cache changes
};

class PrefixCache {
 public:
  // Holds pages of at most `max_bytes`. Layout and pool outlive it.
  PrefixCache(const CacheLayout& layout, PagePool& pool, uint64_t max_bytes);
  ~PrefixCache() { Flush(); }
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The longest row of pages from the first on, one for each key, that a request with this plan may use while
  // these tiers are in force. A plan that follows the tiers takes pages at least as wide as they say, layer by
  // layer; any other takes exactly its widths; in both cases nothing that was computed over pages narrower
  // than the narrowest that the request asks for. Where several serve, the one of fewest bytes. Changes
  // nothing.
  std::vector<PrefixHit> Find(std::span<const PrefixKey> keys, const CachePlan& plan,
                              const TierVector& tiers) const;
  // A prompt begins with these entries, in the order of its pages (none: it shares nothing).
  void Use(std::span<const PrefixEntryId> chain);

  // Keeps the next pages of a sequence that uses them: rows[i] under keys[chain.size() + i], where `chain`
  // holds the entries of its earlier pages and grows by these. An entry of the same key and widths stays if it
  // was computed over pages as wide, and makes way if over narrower ones.
  void Append(std::span<const PrefixKey> keys, std::span<const PageRow> rows,
              std::vector<PrefixEntryId>& chain);

  // Lets go of the least recently used entry that no sequence uses. False: there is none.
  bool EvictIdle();
  void Flush();

  const PrefixCacheStats& stats() const { return stats_; }

 private:
  struct Entry {
    PrefixEntryId id;
    PrefixKey key;
    PageRow row;
    uint64_t bytes;
  };
  using Entries = std::list<Entry>;  // the most recently used first

  bool Serves(const PageRow& row, uint32_t page, const CachePlan& plan, const TierVector& tiers) const;
  PrefixEntryId Insert(const PrefixKey& key, const PageRow& row);
  void Touch(std::span<const PrefixEntryId> chain);
  void Remove(Entries::iterator entry);

  const CacheLayout& layout_;
  PagePool& pool_;
  const uint64_t max_bytes_;
  Entries entries_;
  std::map<PrefixKey, std::vector<Entries::iterator>> by_key_;
  std::unordered_map<PrefixEntryId, Entries::iterator> by_id_;
  PrefixEntryId next_id_ = 1;
  PrefixCacheStats stats_;
};

}  // namespace stria
