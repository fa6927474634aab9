// One turn of the engine: admit, prefill for a while, one decode step.
#include <omp.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "worker/engine_impl.h"

namespace stria {
namespace {

constexpr double kIdlePrefillSeconds = 0.05;  // when nothing decodes: commands are still looked at in between
constexpr double kLearn = 0.1;                // weight of the newest step in the smoothed duration

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

TurnResult EngineImpl::Turn() {
  result_ = TurnResult();
  result_.outputs.swap(ended_);
  Admit();
  Sequences batch;
  for (Sequence* sequence : active_)
    if (!sequence->staging) batch.push_back(sequence);
  Prefill();
  Decode(std::move(batch));
  ReportQuality();
  return std::move(result_);
}

void EngineImpl::Prefill() {
  std::vector<PrefillProgress> progress;
  Sequences prompts;
  bool decoding = false;
  for (Sequence* sequence : active_) {
    if (sequence->staging) {
      prompts.push_back(sequence);
      progress.push_back(sequence->progress());
    } else {
      decoding = true;
    }
  }
  const double budget = decoding ? options_.prefill_steps * step_seconds_ : kIdlePrefillSeconds;
  double spent = 0;
  for (bool first = true; !prompts.empty(); first = false) {  // one unit at least, or prompts would never end
    const size_t next = NextPrompt(prefill_cost_, progress, prefill_units_);
    Sequence& sequence = *prompts[next];
    const double work = prefill_cost_.UnitWork(sequence.unit.begin, sequence.unit.end);
    if (!first && spent + prefill_cost_.Seconds(work) > budget) return;
    const MonotonicTime begin = clock_.Now();
    RunUnit(sequence);
    const double seconds = Seconds(clock_.Now() - begin);
    prefill_cost_.Observe(work, seconds);
    stats_.prefill_seconds += seconds;
    spent += seconds;
    progress[next] = sequence.progress();
    if (sequence.unit.layer < model_.layers) continue;
    FinishPrompt(sequence);
    prompts.erase(prompts.begin() + next);
    progress.erase(progress.begin() + next);
  }
}

void EngineImpl::RunUnit(Sequence& sequence) {
  const auto [layer, begin, end] = sequence.unit;
  positions_.clear();
  for (uint32_t position = begin; position < end; ++position)
    positions_.push_back(static_cast<int32_t>(position));
  prefill_cache_.SetChunk(*sequence.cache, sequence.shadow.get(), *sequence.staging, begin, end);
  transformer_.Layer(layer, RowRole::kPrompt, positions_, sequence.staging->residual(begin), prefill_cache_);
  ++prefill_units_;
  sequence.unit = NextUnit(sequence.shape, sequence.start.plan, options_.prefill_chunk, sequence.unit);
}

void EngineImpl::FinishPrompt(Sequence& sequence) {
  const MonotonicTime begin = clock_.Now();
  const uint32_t tokens = sequence.prompt_tokens();
  sequence.cache->FinishPrompt(sequence.kept_tokens(), sequence.shape.evicted);
  if (sequence.shadow != nullptr) sequence.shadow->FinishPrompt(tokens, 0);
  stats_.prompt_tokens += tokens - sequence.shape.shared;
  stats_.evicted_tokens += sequence.shape.evicted;
  stats_.pages_sealed += prefill_cache_.TakeSealed();
  KeepPages(sequence);
  const float* last = sequence.staging->residual(tokens - 1);
  std::copy(last, last + model_.hidden, residual_.begin());
  sequence.staging.reset();
  admission_stale_ = true;
  SampleRows({&sequence}, residual_.data(), RowRole::kPrompt);
  stats_.prefill_seconds += Seconds(clock_.Now() - begin);
}

void EngineImpl::Decode(Sequences batch) {
  // Pages first, oldest sequence first: running out is settled before any arithmetic starts. Those that had
  // to go, and what they were, are gone from `active_`.
  const size_t active = active_.size();
  const auto gone = [&](Sequence* s) {
    return active_.size() < active && std::find(active_.begin(), active_.end(), s) == active_.end();
  };
  for (Sequence* sequence : batch)
    if (!gone(sequence)) Grow(*sequence);
  std::erase_if(batch, gone);
  if (batch.empty()) return;
  GrowShadows(batch);

  const MonotonicTime begin = clock_.Now();
  const int rows = static_cast<int>(batch.size());
  tokens_.clear();
  positions_.clear();
  caches_.clear();
  for (Sequence* sequence : batch) {
    tokens_.push_back(sequence->pending);
    positions_.push_back(static_cast<int32_t>(sequence->cache->positions()));
    caches_.push_back(sequence->cache.get());
  }
  const bool fires = probe_.Fires(tiers_, stats_.steps) && probe_.Arm(caches_, stats_.steps);
  AddShadowRows(batch);
  decode_cache_.Begin(caches_, fires ? &probe_ : nullptr);
  transformer_.Embed(tokens_, residual_.data());
  for (int layer = 0; layer < model_.layers; ++layer)
    transformer_.Layer(layer, RowRole::kDecode, positions_, residual_.data(), decode_cache_);
  stats_.pages_sealed += decode_cache_.End();
  for (Sequence* sequence : batch) {
    if (!sequence->prefix) continue;
    sequence->prefix->Append({&sequence->pending, 1});
    KeepPages(*sequence);
  }
  ++stats_.steps;
  stats_.decode_tokens += rows;
  double canary_seconds = 0;
  if (fires) {
    result_.canary = probe_.Read(tiers_);
    canary_seconds = result_.canary->cost_seconds;
    ++stats_.firings;
    stats_.canary_seconds += canary_seconds;
  }
  ScoreShadows(batch);  // before sampling ends any
  SampleRows(batch, residual_.data(), RowRole::kDecode);
  const double seconds = Seconds(clock_.Now() - begin);
  stats_.decode_seconds += seconds;
  const double quiet = seconds - canary_seconds;
  step_seconds_ = step_seconds_ > 0 ? step_seconds_ + kLearn * (quiet - step_seconds_) : quiet;
}

void EngineImpl::Grow(Sequence& sequence) {
  while (!sequence.cache->AllocateNextPage(tiers_, Placement::kNeighbours) &&
         !sequence.cache->AllocateNextPage(tiers_, Placement::kGaps)) {
    if (EvictIdle() || DropNewestShadow()) continue;
    Sequence& victim = Victim();
    if (victim.staging) {
      SendBack(victim);
    } else if (active_.size() == 1) {
      End(sequence, FinishReason::kError,
          absl::StrCat("the cache pool of ", pool_->capacity(), " bytes is full: this sequence alone holds ",
                       sequence.cache->bytes(), " with ", sequence.cache->tokens(), " tokens"));
      return;
    } else {
      ++stats_.preemptions;
      const bool itself = &victim == &sequence;
      End(victim, FinishReason::kPreempted);
      if (itself) return;
    }
  }
}

// Of the active sequences that matter least, the newest.
Sequence& EngineImpl::Victim() {
  Sequence* victim = active_.front();
  for (Sequence* sequence : active_)  // in order of arrival
    if (sequence->start.priority >= victim->start.priority) victim = sequence;
  return *victim;
}

// A prompt that prefills has shown nothing yet: it waits again, at its place, and is not counted as
// preempted.
void EngineImpl::SendBack(Sequence& sequence) {
  sequence.staging.reset();
  sequence.shadow.reset();
  ShareNothing(sequence);
  sequence.careful = true;
  std::erase(active_, &sequence);
  const auto place =
      std::upper_bound(waiting_.begin(), waiting_.end(), &sequence,
                       [](const Sequence* a, const Sequence* b) { return a->order < b->order; });
  waiting_.insert(place, &sequence);
  admission_stale_ = true;
}

void EngineImpl::SampleRows(const Sequences& batch, const float* residual, RowRole role) {
  const size_t block = logits_.size() / model_.vocab;
  for (size_t first = 0; first < batch.size(); first += block) {
    const int rows = static_cast<int>(std::min(block, batch.size() - first));
    transformer_.Head(role, rows, residual + first * model_.hidden, logits_.data());
    const auto row_logits = [&](int row) {
      return std::span<const float>(logits_.data() + size_t(row) * model_.vocab, model_.vocab);
    };
    if (options_.observer != nullptr)
      for (int row = 0; row < rows; ++row) {
        const Sequence& sequence = *batch[first + row];
        options_.observer->OnLogits(sequence.start.name, sequence.next_index, row_logits(row));
      }
    chosen_.assign(rows, std::nullopt);
#pragma omp parallel for num_threads(options_.threads) schedule(dynamic) if (rows > 1)
    for (int row = 0; row < rows; ++row) {
      Sequence& sequence = *batch[first + row];
      SamplerScratch& scratch = scratch_[omp_get_thread_num()];
      chosen_[row] =
          sequence.forced()
              ? sequence.sampler.Score(row_logits(row), sequence.start.forced[sequence.next_index], scratch)
              : sequence.sampler.Sample(row_logits(row), sequence.next_index, scratch);
    }
    for (int row = 0; row < rows; ++row) Choose(*batch[first + row], std::move(chosen_[row]));
  }
}

void EngineImpl::Choose(Sequence& sequence, std::optional<TokenOut> token) {
  if (!token) return End(sequence, FinishReason::kError, "no token has a finite logit");
  const int32_t id = token->token;
  OutputOf(sequence).tokens.push_back(*std::move(token));
  ++sequence.next_index;
  sequence.pending = id;
  const auto& stops = sequence.start.stop_tokens;
  if (!sequence.forced() && std::find(stops.begin(), stops.end(), id) != stops.end())
    return End(sequence, FinishReason::kStop);
  if (sequence.next_index >= sequence.limit() || sequence.cache->positions() >= max_context_)
    return End(sequence, FinishReason::kLength);
}

SequenceOutput& EngineImpl::OutputOf(const Sequence& sequence) {
  if (result_.outputs.empty() || result_.outputs.back().name != sequence.start.name) {
    SequenceOutput& output = result_.outputs.emplace_back();
    output.name = sequence.start.name;
    output.first_index = sequence.next_index;
    output.epoch = tiers_.epoch;
  }
  return result_.outputs.back();
}

void EngineImpl::End(Sequence& sequence, FinishReason reason, std::string message) {
  SequenceOutput& output = OutputOf(sequence);
  output.finish = reason;
  output.message = std::move(message);
  if (sequence.cache != nullptr) output.kv = sequence.cache->Usage();
  std::erase(waiting_, &sequence);
  std::erase(active_, &sequence);
  sequences_.erase(SequenceName(sequence.start.name));
  admission_stale_ = true;
}

}  // namespace stria
