// Shadows: which sequences have one, with which memory, and what they say.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/random.h"
#include "worker/admission.h"
#include "worker/engine_impl.h"
#include "worker/next_token_kl.h"

namespace stria {
namespace {

constexpr uint64_t kDrawing = 2;        // stream of the generator; the canary has 0 and 1
constexpr double kScoredFrom = 0.75;    // of what a position attends to is quantised
constexpr uint64_t kFrameTokens = 64;   // scored positions that are worth a frame
constexpr uint64_t kPoolShare = 8;      // of the pool that shadows hold at most, where nothing else is said

}  // namespace

uint32_t MostDecodeRows(const EngineOptions& options) {
  const uint32_t shadows = options.shadows.share > 0 ? std::min(options.shadows.sequences, options.max_sequences) : 0;
  return options.max_sequences + shadows;
}

// Fixed modes have no tiers to judge; where tokens are evicted, what a shadow would measure is the eviction.
bool EngineImpl::Draw(const Sequence& sequence) const {
  return sequence.start.plan.follow_tiers && sequence.shape.evicted == 0 &&
         Uniform(options_.canary_seed, kDrawing, sequence.order) < options_.shadows.share;
}

// One that will be shadowed takes no shared pages: they hold the tokens at one width only.
bool EngineImpl::WantsShadow(const Sequence& sequence) const {
  if (!sequence.drawn || sequence.careful || sequence.shadow != nullptr) return false;
  const auto others = std::count_if(active_.begin(), active_.end(), [](const Sequence* s) { return s->shadow != nullptr; });
  return static_cast<uint32_t>(others) < MostDecodeRows(options_) - options_.max_sequences;
}

uint64_t EngineImpl::ShadowBytes() const {
  uint64_t bytes = 0;
  for (const Sequence* sequence : active_)
    if (sequence->shadow != nullptr) bytes += sequence->shadow->bytes();
  return bytes;
}

uint64_t EngineImpl::ShadowLimit() const {
  return options_.shadows.bytes > 0 ? options_.shadows.bytes : pool_->capacity() / kPoolShare;
}

// Before the first units of those that have just been admitted, and only while nobody waits for memory.
void EngineImpl::BeginShadows() {
  if (!waiting_.empty() && active_.size() < options_.max_sequences) return;
  for (Sequence* sequence : active_) {
    const bool untouched = sequence->staging && sequence->unit.layer == 0 && sequence->unit.begin == 0;
    if (!untouched || sequence->shape.shared > 0 || !WantsShadow(*sequence)) continue;
    const DemandList demand = ShadowDemand(layout_, shadow_plan_, *sequence);
    uint64_t bytes = ShadowBytes();
    for (const PageDemand& pages : demand.demands()) bytes += pages.page_bytes * pages.pages;
    if (bytes > ShadowLimit() || !ShadowMayBegin(layout_, *pool_, tiers_, shadow_plan_, *sequence, active_)) continue;
    while (!pool_->Fits(demand.demands(), 0)) STRIA_CHECK(prefix_cache_ && prefix_cache_->EvictIdle());
    sequence->shadow = std::make_unique<SequenceCache>(layout_, *pool_, shadow_pages_, shadow_plan_);
    STRIA_CHECK(sequence->shadow->AllocatePrompt(sequence->prompt_tokens(), tiers_, Placement::kGaps));
    ++stats_.shadows.begun;
  }
}

void EngineImpl::DropShadow(Sequence& sequence) {
  sequence.shadow.reset();
  ++stats_.shadows.dropped;
  admission_stale_ = true;
}

// False: there is none.
bool EngineImpl::DropNewestShadow() {
  const auto newest = std::find_if(active_.rbegin(), active_.rend(), [](const Sequence* s) { return s->shadow != nullptr; });
  if (newest == active_.rend()) return false;
  DropShadow(**newest);
  return true;
}

// After the sequences themselves have grown.
void EngineImpl::GrowShadows(const Sequences& batch) {
  for (Sequence* sequence : batch) {
    while (sequence->shadow != nullptr && !sequence->shadow->AllocateNextPage(tiers_, Placement::kGaps))
      if (!EvictIdle()) DropShadow(*sequence);
  }
  while (ShadowBytes() > ShadowLimit()) DropNewestShadow();
}

// Rows of shadows stand behind those of the batch, in its order.
void EngineImpl::AddShadowRows(const Sequences& batch) {
  shadowed_.clear();
  for (size_t row = 0; row < batch.size(); ++row) {
    const Sequence& sequence = *batch[row];
    if (sequence.shadow == nullptr) continue;
    tokens_.push_back(sequence.pending);
    positions_.push_back(static_cast<int32_t>(sequence.shadow->positions()));
    caches_.push_back(sequence.shadow.get());
    shadowed_.push_back({row, sequence.cache->QuantisedShare() >= kScoredFrom});
  }
}

// The step's last residuals [rows, hidden] are the batch's, then the shadows'.
void EngineImpl::ScoreShadows(const Sequences& batch) {
  stats_.shadows.rows += shadowed_.size();
  std::vector<const Sequence*> scored;
  size_t to = 0;
  const auto take = [&](size_t row) {
    std::copy_n(residual_.begin() + static_cast<ptrdiff_t>(row * model_.hidden), model_.hidden,
                shadow_residual_.begin() + static_cast<ptrdiff_t>(to++ * model_.hidden));
  };
  for (size_t i = 0; i < shadowed_.size(); ++i) {
    if (!shadowed_[i].counts) continue;
    take(batch.size() + i);
    take(shadowed_[i].row);
    scored.push_back(batch[shadowed_[i].row]);
  }
  if (scored.empty()) return;
  transformer_.Head(RowRole::kDecode, static_cast<int>(to), shadow_residual_.data(), shadow_logits_.data());
  for (size_t i = 0; i < scored.size(); ++i) {
    const auto logits = [&](size_t row) { return std::span<const float>(shadow_logits_.data() + row * model_.vocab, model_.vocab); };
    const double kl = NextTokenKl(logits(2 * i), logits(2 * i + 1));
    if (!std::isfinite(kl)) continue;  // the sampler will say so, or worse
    tally_.Add(scored[i]->cache->positions(), kl);
    ++stats_.shadows.scored;
    stats_.shadows.kl += kl;
  }
}

void EngineImpl::ReportQuality() {
  const bool last = ShadowBytes() == 0;
  if (tally_.tokens() == 0 || (tally_.tokens() < kFrameTokens && !last)) return;
  result_.quality.emplace();
  result_.quality->epoch = tiers_.epoch;
  result_.quality->readings = tally_.Take();
}

}  // namespace stria
