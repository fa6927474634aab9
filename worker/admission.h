// Whether a sequence's memory is there: at Start against an empty pool, later beside the others.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "proto/tiers.h"
#include "worker/cache_layout.h"
#include "worker/page_pool.h"
#include "worker/sequence.h"

namespace stria {

// InvalidArgument, with the numbers, if not even an empty pool of `pool_bytes` could hold the prompt while it
// prefills, or the whole sequence at its end, at the widths in force.
absl::Status CheckEverFits(const CacheLayout& layout, uint64_t pool_bytes, const TierVector& tiers,
                           const Sequence& sequence);

// The pages and rings that the prompt takes beside the pages that its cache shares already, and the bytes that
// it stages.
DemandList PromptDemand(const CacheLayout& layout, const TierVector& tiers, const Sequence& sequence);
uint64_t StagingBytes(const CacheLayout& layout, const Sequence& sequence);

// Whether its prompt has to wait for others' to leave their staging, however many pages are free.
bool StagingWaits(const CacheLayout& layout, const PagePool& pool, const Sequence& sequence);

// Whether the sequence may begin to prefill now beside `active` (prefilling and running) ones. Its cache holds
// the pages that it shares, if any. Its prompt's other pages, rings and staging fit, once idle pages are let go,
// and leave every sequence room to grow by a page. A careful one waits until everything that it and the others
// may ever take fits at once, so it is not thrown out a second time.
bool MayBegin(const CacheLayout& layout, const PagePool& pool, const TierVector& tiers,
              const Sequence& sequence, std::span<Sequence* const> active);

// What a shadow of `plan` takes for the prompt of a sequence that has begun, and its room to grow by a page.
DemandList ShadowDemand(const CacheLayout& layout, const CachePlan& plan, const Sequence& sequence);
// Whether that fits now, once idle pages are let go, and leaves every active sequence room to grow by a page.
bool ShadowMayBegin(const CacheLayout& layout, const PagePool& pool, const TierVector& tiers, const CachePlan& plan,
                    const Sequence& sequence, std::span<Sequence* const> active);

}  // namespace stria
