#include "worker/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stria {
namespace {

// Staging of all prompts in flight but the first stays below this share of the pool.
constexpr uint64_t kStagingShare = 4;

void AddWhole(const CacheLayout& layout, const TierVector& tiers, const Sequence& sequence, uint32_t tokens,
              DemandList& list) {
  layout.AddRings(sequence.start.plan, list);
  layout.AddPages(sequence.start.plan, tiers, 0, tokens / kPageTokens, list);
}

uint32_t OnePageMore(uint32_t tokens, uint32_t most) { return std::min(tokens + kPageTokens, most); }

void AddGrowthByAPage(const TierVector& tiers, std::span<Sequence* const> active, DemandList& list) {
  for (const Sequence* other : active)
    other->cache->AddGrowth(OnePageMore(std::max(other->cache->tokens(), other->kept_tokens()), other->most_tokens), tiers,
                            list);
}

}  // namespace

DemandList PromptDemand(const CacheLayout& layout, const TierVector& tiers, const Sequence& sequence) {
  DemandList demand;
  layout.AddRings(sequence.start.plan, demand);
  layout.AddPages(sequence.start.plan, tiers, sequence.shape.shared / kPageTokens,
                  sequence.kept_tokens() / kPageTokens, demand);
  return demand;
}

uint64_t StagingBytes(const CacheLayout& layout, const Sequence& sequence) {
  return layout.StagingBytes(sequence.prompt_tokens(), sequence.shape.shared);
}

absl::Status CheckEverFits(const CacheLayout& layout, uint64_t pool_bytes, const TierVector& tiers,
                           const Sequence& sequence) {
  DemandList prompt, whole;
  AddWhole(layout, tiers, sequence, sequence.kept_tokens(), prompt);
  AddWhole(layout, tiers, sequence, sequence.most_tokens, whole);
  const uint64_t prefill_bytes = PagePool::Footprint(prompt.demands(), StagingBytes(layout, sequence));
  const uint64_t bytes = std::max(prefill_bytes, PagePool::Footprint(whole.demands(), 0));
  if (bytes <= pool_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a prompt of ", sequence.prompt_tokens(),
                                                 " tokens whose cache may grow to ", sequence.most_tokens, " needs ",
                                                 bytes, " bytes of cache; the pool has ", pool_bytes));
}

bool StagingWaits(const CacheLayout& layout, const PagePool& pool, const Sequence& sequence) {
  return pool.charged_bytes() > 0 &&
         pool.charged_bytes() + StagingBytes(layout, sequence) > pool.capacity() / kStagingShare;
}

bool MayBegin(const CacheLayout& layout, const PagePool& pool, const TierVector& tiers,
              const Sequence& sequence, std::span<Sequence* const> active) {
  const uint64_t staging = StagingBytes(layout, sequence);
  DemandList now = PromptDemand(layout, tiers, sequence);
  if (active.empty()) return pool.Fits(now.demands(), staging, PagePool::Idle::kIsFree);
  if (StagingWaits(layout, pool, sequence)) return false;

  const uint32_t own = sequence.kept_tokens() / kPageTokens;
  layout.AddPages(sequence.start.plan, tiers, own,
                  std::max(own, OnePageMore(sequence.kept_tokens(), sequence.most_tokens) / kPageTokens),
                  now);
  AddGrowthByAPage(tiers, active, now);
  if (!pool.Fits(now.demands(), staging, PagePool::Idle::kIsFree)) return false;
  if (!sequence.careful) return true;

  DemandList all;
  layout.AddRings(sequence.start.plan, all);
  sequence.cache->AddHeld(all);  // shared pages
  sequence.cache->AddGrowth(sequence.most_tokens, tiers, all);
  for (const Sequence* other : active) {
    other->cache->AddHeld(all);
    other->cache->AddGrowth(other->most_tokens, tiers, all);
  }
  return PagePool::Footprint(all.demands(), pool.charged_bytes() + staging) <= pool.capacity();
}

DemandList ShadowDemand(const CacheLayout& layout, const CachePlan& plan, const Sequence& sequence) {
  DemandList demand;
  layout.AddRings(plan, demand);
  layout.AddPages(plan, {}, 0, OnePageMore(sequence.prompt_tokens(), sequence.most_tokens) / kPageTokens, demand);
  return demand;
}

bool ShadowMayBegin(const CacheLayout& layout, const PagePool& pool, const TierVector& tiers, const CachePlan& plan,
                    const Sequence& sequence, std::span<Sequence* const> active) {
  DemandList demand = ShadowDemand(layout, plan, sequence);
  AddGrowthByAPage(tiers, active, demand);
  return pool.Fits(demand.demands(), 0, PagePool::Idle::kIsFree);
}

}  // namespace stria
