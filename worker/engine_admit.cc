// Who begins to prefill, and with what: memory, and pages that earlier sequences left.
#include <algorithm>

#include "base/check.h"
#include "worker/admission.h"
#include "worker/engine_impl.h"

namespace stria {
namespace {

constexpr uint32_t kMaxOvertakes = 16;  // of a sequence that waits for memory, by younger ones that fit

}  // namespace

void EngineImpl::Admit() {
  if (!admission_stale_) return;
  for (size_t i = 0;
       i < std::min<size_t>(waiting_.size(), kMaxOvertakes + 1) && active_.size() < options_.max_sequences;) {
    Sequence& sequence = *waiting_[i];
    const Admission admission = TryToBegin(sequence);
    if (admission == Admission::kWaits) {  // for pages, not for memory: nobody overtakes it
      ++i;
      continue;
    }
    if (admission == Admission::kNoRoom) {
      if (!StagingWaits(layout_, *pool_, sequence) && DropNewestShadow()) continue;
      if (active_.empty()) {  // fitted at Start, but the tiers have widened since
        const absl::Status status = CheckEverFits(layout_, pool_->capacity(), tiers_, sequence);
        End(sequence, FinishReason::kError, std::string(status.message()));
        continue;
      }
      if (overtakes_ >= kMaxOvertakes) break;
      ++i;
      continue;
    }
    if (i > 0) ++overtakes_;
    if (i == 0) overtakes_ = 0;
    waiting_.erase(waiting_.begin() + i);
    const auto place =
        std::upper_bound(active_.begin(), active_.end(), &sequence,
                         [](const Sequence* a, const Sequence* b) { return a->order < b->order; });
    active_.insert(place, &sequence);
    TakeMemory(sequence);
    const uint32_t shared = sequence.shape.shared;
    transformer_.Embed(std::span(sequence.start.prompt).subspan(shared), sequence.staging->residual(shared));
  }
  BeginShadows();
  admission_stale_ = false;
}

std::unique_ptr<SequenceCache> EngineImpl::NewCache(const Sequence& sequence) {
  return std::make_unique<SequenceCache>(layout_, *pool_, page_counts_, sequence.start.plan);
}

// It has no cache any more, so it holds no pages.
void EngineImpl::ShareNothing(Sequence& sequence) {
  sequence.cache.reset();
  sequence.entries.clear();
  sequence.shape.shared = 0;
}

// kBegins: its cache holds the pages that it shares, which nobody can evict any more. Otherwise it has none.
EngineImpl::Admission EngineImpl::TryToBegin(Sequence& sequence) {
  sequence.cache = NewCache(sequence);
  const bool shares = sequence.prefix && !WantsShadow(sequence);
  if (shares) {
    // One token at least is computed: the first answer comes from it.
    const auto keys = std::span(sequence.prefix->keys()).first((sequence.prompt_tokens() - 1) / kPageTokens);
    for (const PrefixHit& hit : prefix_cache_->Find(keys, sequence.start.plan, tiers_)) {
      sequence.cache->Share(*hit.row);
      sequence.entries.push_back(hit.entry);
    }
    sequence.shape.shared = sequence.cache->shared_pages() * kPageTokens;
  }
  sequence.unit = FirstUnit(sequence.shape, options_.prefill_chunk);
  Admission admission = Admission::kNoRoom;
  if (shares && WorthWaiting(sequence)) {
    admission = Admission::kWaits;
  } else if (MayBegin(layout_, *pool_, tiers_, sequence, active_)) {
    admission = Admission::kBegins;
  } else if (sequence.cache->shared_pages() > 0) {
    // What it would share may be wider than what it would seal itself.
    ShareNothing(sequence);
    sequence.cache = NewCache(sequence);
    sequence.unit = FirstUnit(sequence.shape, options_.prefill_chunk);
    if (MayBegin(layout_, *pool_, tiers_, sequence, active_)) admission = Admission::kBegins;
  }
  if (admission != Admission::kBegins) {
    ShareNothing(sequence);
  } else if (shares) {
    prefix_cache_->Use(sequence.entries);
  }
  return admission;
}

// Whether a prompt that computes now will leave pages that this one can share, and would run before it
// anyway: several answers to one prompt, say, which arrive together.
bool EngineImpl::WorthWaiting(const Sequence& sequence) const {
  const std::vector<PrefixKey>& keys = sequence.prefix->keys();
  const size_t most = (sequence.prompt_tokens() - 1) / kPageTokens, shared = sequence.cache->shared_pages();
  if (shared == most) return false;
  for (const Sequence* other : active_) {
    if (!other->staging || !other->prefix || other->start.plan != sequence.start.plan) continue;
    // Keys are chains: this one equal, all before it are.
    if (other->prefix->keys().size() > shared && other->prefix->keys()[shared] == keys[shared] &&
        prefill_cost_.RemainingWork(other->progress()) <= prefill_cost_.RemainingWork(sequence.progress()))
      return true;
  }
  return false;
}

// All that MayBegin counted. It counted idle pages as free, so they go first: once the rest fits without them,
// it can be had for certain.
void EngineImpl::TakeMemory(Sequence& sequence) {
  const DemandList demand = PromptDemand(layout_, tiers_, sequence);
  while (!pool_->Fits(demand.demands(), StagingBytes(layout_, sequence)))
    STRIA_CHECK(prefix_cache_ && prefix_cache_->EvictIdle());
  const uint32_t tokens = sequence.kept_tokens();
  sequence.staging = PromptStaging::Take(layout_, model_.hidden, sequence.shape, *pool_, options_.poison);
  STRIA_CHECK(sequence.staging != nullptr);
  if (sequence.cache->AllocatePrompt(tokens, tiers_, Placement::kNeighbours)) return;
  std::unique_ptr<SequenceCache> again = NewCache(sequence);
  for (uint32_t page = 0; page < sequence.cache->shared_pages(); ++page)
    again->Share(sequence.cache->Row(page));
  sequence.cache = std::move(again);
  STRIA_CHECK(sequence.cache->AllocatePrompt(tokens, tiers_, Placement::kGaps));
}

// Leaves what the sequence has sealed since the last time to others.
void EngineImpl::KeepPages(Sequence& sequence) {
  if (!sequence.prefix) return;
  std::vector<PageRow> rows;
  for (auto page = static_cast<uint32_t>(sequence.entries.size()); page < sequence.cache->sealed_pages(); ++page)
    rows.push_back(sequence.cache->Row(page));
  if (!rows.empty()) prefix_cache_->Append(sequence.prefix->keys(), rows, sequence.entries);
}

// A few at a time, so that a stream that grows finds neighbouring places.
bool EngineImpl::EvictIdle() {
  uint32_t evicted = 0;
  while (prefix_cache_ && evicted < kGrowthRun && prefix_cache_->EvictIdle()) ++evicted;
  return evicted > 0;
}

}  // namespace stria
