#include "services/worker/worker_metrics.h"

#include <string>

namespace stria {
namespace {

constexpr Duration kRefreshEvery = std::chrono::milliseconds(100);

}  // namespace

WorkerMetrics::WorkerMetrics(Metrics& metrics, const WorkerIdentity& identity, const Engine& engine, const SequenceLink& sequences,
                             const TierLink& tiers, const TelemetryLink& telemetry, const Clock& clock)
    : metrics_(metrics),
      engine_(engine),
      sequences_(sequences),
      tiers_(tiers),
      telemetry_(telemetry),
      clock_(clock),
      pool_bytes_(metrics.Gauge("stria_worker_pool_bytes", "Memory of the page pool: pages, rings and prefill staging.")),
      used_bytes_(metrics.Gauge("stria_worker_pool_used_bytes", "Bytes of the pool in use, staging included, idle cached pages not.")),
      idle_bytes_(metrics.Gauge("stria_worker_prefix_idle_bytes", "Bytes of pages that only the prefix cache holds; free on demand.")),
      shared_bytes_(metrics.Gauge("stria_worker_prefix_shared_bytes", "What sequences would hold more if none shared pages.")),
      prefix_bytes_(metrics.Gauge("stria_worker_prefix_bytes", "Bytes of pages in the prefix cache, in use or idle.")),
      prefix_entries_(metrics.Gauge("stria_worker_prefix_entries", "Entries of the prefix cache, 64 tokens each.")),
      staging_bytes_(metrics.Gauge("stria_worker_staging_bytes", "Bytes held by prompts while they prefill.")),
      running_(metrics.Gauge("stria_worker_sequences_running", "Sequences in the decode batch.")),
      prefilling_(metrics.Gauge("stria_worker_sequences_prefilling", "Sequences whose prompt is being computed.")),
      epoch_(metrics.Gauge("stria_worker_tier_epoch", "Epoch of the tier vector in force; 0: no controller was heard yet.")),
      frozen_(metrics.Gauge("stria_worker_tiers_frozen", "1 while the vector is held and the canary is off.")),
      canary_rate_(metrics.Gauge("stria_worker_canary_rate", "Share of decode steps that fire the canary.")),
      unacknowledged_(metrics.Gauge("stria_worker_unacknowledged_tokens", "Tokens kept until the scheduler acknowledges them.")),
      shadow_bytes_(metrics.Gauge("stria_worker_shadow_bytes", "Bytes of the pool that shadows hold; free on demand.")),
      shadow_sequences_(metrics.Gauge("stria_worker_shadow_sequences", "Sequences shadowed now.")),
      steps_(metrics.Counter("stria_worker_steps_total", "Decode steps.")),
      prompt_tokens_(metrics.Counter("stria_worker_tokens_total", "Tokens computed.", {{"kind", "prompt"}})),
      decode_tokens_(metrics.Counter("stria_worker_tokens_total", "Tokens computed.", {{"kind", "decode"}})),
      prefill_seconds_(metrics.Counter("stria_worker_busy_seconds_total", "Time spent computing.", {{"kind", "prefill"}})),
      decode_seconds_(metrics.Counter("stria_worker_busy_seconds_total", "Time spent computing.", {{"kind", "decode"}})),
      canary_seconds_(metrics.Counter("stria_worker_canary_seconds_total", "Time spent on canary firings, inside decode.")),
      firings_(metrics.Counter("stria_worker_canary_firings_total", "Decode steps that fired the canary.")),
      sealed_(metrics.Counter("stria_worker_pages_sealed_total", "Pages sealed, keys and values.")),
      preemptions_(metrics.Counter("stria_worker_preemptions_total", "Sequences ended because pages ran out.")),
      evicted_tokens_(metrics.Counter("stria_worker_evicted_tokens_total", "Prompt tokens that plans evicted.")),
      prefix_lookups_(metrics.Counter("stria_worker_prefix_lookups_total", "Prompts looked up in the prefix cache.")),
      prefix_hits_(metrics.Counter("stria_worker_prefix_hits_total", "Prompts that shared pages.")),
      prefix_tokens_(metrics.Counter("stria_worker_prefix_hit_tokens_total", "Prompt tokens not computed because their pages were there.")),
      prefix_evictions_(metrics.Counter("stria_worker_prefix_evictions_total", "Entries evicted for want of memory.")),
      frames_(metrics.Counter("stria_worker_telemetry_frames_total", "Telemetry frames published.")),
      unsent_frames_(metrics.Counter("stria_worker_telemetry_unsent_total", "Telemetry frames that the socket refused.")),
      starts_(metrics.Counter("stria_worker_commands_total", "Commands taken.", {{"kind", "start"}})),
      cancels_(metrics.Counter("stria_worker_commands_total", "Commands taken.", {{"kind", "cancel"}})),
      duplicates_(metrics.Counter("stria_worker_duplicate_commands_total", "Commands that had been taken before.")),
      resends_(metrics.Counter("stria_worker_output_resends_total", "Times that a sequence's outputs were sent again.")),
      dropped_(metrics.Counter("stria_worker_dropped_sequences_total", "Sequences of a scheduler that restarted or went silent.")),
      refused_commands_(metrics.Counter("stria_worker_refused_frames_total", "Malformed or foreign frames.", {{"socket", "sequences"}})),
      refused_tiers_(metrics.Counter("stria_worker_refused_frames_total", "Malformed or foreign frames.", {{"socket", "tiers"}})),
      stale_tiers_(metrics.Counter("stria_worker_stale_tier_vectors_total", "Tier vectors older than the one in force.")),
      applied_tiers_(metrics.Counter("stria_worker_tier_vectors_applied_total", "Tier vectors put in force.")),
      shadow_rows_(metrics.Counter("stria_worker_shadow_rows_total", "Decode rows computed over FP16 shadow caches.")),
      shadow_scored_(metrics.Counter("stria_worker_shadow_scored_tokens_total", "Positions whose next-token KL was measured.")),
      shadow_kl_(metrics.Counter("stria_worker_shadow_kl_nats_total", "Sum of the next-token KL of these positions.")),
      shadows_begun_(metrics.Counter("stria_worker_shadows_total", "Sequences that were shadowed.")),
      shadows_dropped_(metrics.Counter("stria_worker_shadows_dropped_total", "Shadows dropped for want of memory before their sequences ended.")),
      step_seconds_(metrics.Histogram("stria_worker_step_seconds", "Time of one decode step of the whole batch.",
                                      ExponentialBuckets(0.0005, 2, 14))) {
  constexpr const char* kHelp = "Pages in use.";
  for (int i = 0; i < 4; ++i) pages_[i] = &metrics.Gauge("stria_worker_pages", kHelp, {{"width", Name(kAllWidths[i])}});
  metrics.Gauge("stria_worker_info", "Always 1.", {{"worker", identity.name}, {"model", identity.model_name}, {"fingerprint", identity.model}})
      .Set(1);
}

void WorkerMetrics::AfterTurn(bool worked) {
  const bool ended = worked_ && !worked;
  worked_ = worked;
  const MonotonicTime now = clock_.Now();
  if (!worked && !ended && now < next_refresh_) return;
  const EngineStats stats = engine_.stats();
  if (const uint64_t steps = stats.steps - last_steps_; steps > 0) {
    step_seconds_.Observe((stats.decode_seconds - last_decode_seconds_) / static_cast<double>(steps));
    last_steps_ = stats.steps;
    last_decode_seconds_ = stats.decode_seconds;
  }
  if (!ended && now < next_refresh_) return;
  next_refresh_ = now + kRefreshEvery;
  Refresh(stats);
}

void WorkerMetrics::Refresh(const EngineStats& stats) {
  pool_bytes_.Set(static_cast<double>(stats.pool_bytes));
  used_bytes_.Set(static_cast<double>(stats.used_bytes));
  idle_bytes_.Set(static_cast<double>(stats.idle_bytes));
  shared_bytes_.Set(static_cast<double>(stats.shared_bytes));
  prefix_bytes_.Set(static_cast<double>(stats.prefix.bytes));
  prefix_entries_.Set(static_cast<double>(stats.prefix.entries));
  AdvanceTo(prefix_lookups_, static_cast<double>(stats.prefix.lookups));
  AdvanceTo(prefix_hits_, static_cast<double>(stats.prefix.hits));
  AdvanceTo(prefix_tokens_, static_cast<double>(stats.prefix.hit_tokens));
  AdvanceTo(prefix_evictions_, static_cast<double>(stats.prefix.evictions));
  staging_bytes_.Set(static_cast<double>(stats.staging_bytes));
  for (int i = 0; i < 4; ++i) pages_[i]->Set(static_cast<double>(stats.pages_used[i]));
  running_.Set(stats.running);
  prefilling_.Set(stats.prefilling);
  AdvanceTo(steps_, static_cast<double>(stats.steps));
  AdvanceTo(prompt_tokens_, static_cast<double>(stats.prompt_tokens));
  AdvanceTo(decode_tokens_, static_cast<double>(stats.decode_tokens));
  AdvanceTo(prefill_seconds_, stats.prefill_seconds);
  AdvanceTo(decode_seconds_, stats.decode_seconds);
  AdvanceTo(canary_seconds_, stats.canary_seconds);
  AdvanceTo(firings_, static_cast<double>(stats.firings));
  AdvanceTo(sealed_, static_cast<double>(stats.pages_sealed));
  AdvanceTo(preemptions_, static_cast<double>(stats.preemptions));
  AdvanceTo(evicted_tokens_, static_cast<double>(stats.evicted_tokens));
  shadow_bytes_.Set(static_cast<double>(stats.shadows.bytes));
  shadow_sequences_.Set(stats.shadows.sequences);
  AdvanceTo(shadow_rows_, static_cast<double>(stats.shadows.rows));
  AdvanceTo(shadow_scored_, static_cast<double>(stats.shadows.scored));
  AdvanceTo(shadow_kl_, stats.shadows.kl);
  AdvanceTo(shadows_begun_, static_cast<double>(stats.shadows.begun));
  AdvanceTo(shadows_dropped_, static_cast<double>(stats.shadows.dropped));
  AdvanceTo(frames_, static_cast<double>(telemetry_.published()));
  AdvanceTo(unsent_frames_, static_cast<double>(telemetry_.unsent()));
  const SequenceLinkStats& link = sequences_.stats();
  AdvanceTo(starts_, static_cast<double>(link.starts));
  AdvanceTo(cancels_, static_cast<double>(link.cancels));
  AdvanceTo(duplicates_, static_cast<double>(link.duplicates));
  AdvanceTo(resends_, static_cast<double>(link.resends));
  AdvanceTo(dropped_, static_cast<double>(link.dropped_sequences));
  AdvanceTo(refused_commands_, static_cast<double>(link.refused_frames));
  unacknowledged_.Set(static_cast<double>(link.unacknowledged_tokens));
  AdvanceTo(refused_tiers_, static_cast<double>(tiers_.stats().refused_frames));
  AdvanceTo(stale_tiers_, static_cast<double>(tiers_.stats().stale));
  AdvanceTo(applied_tiers_, static_cast<double>(tiers_.stats().applied));
  if (engine_.tiers().epoch != shown_epoch_) RefreshTiers();
}

void WorkerMetrics::RefreshTiers() {
  const TierVector& tiers = engine_.tiers();
  shown_epoch_ = tiers.epoch;
  epoch_.Set(static_cast<double>(tiers.epoch));
  frozen_.Set(tiers.frozen ? 1 : 0);
  canary_rate_.Set(tiers.canary_rate);
  constexpr const char* kHelp = "Width in force of a layer's next pages, in bits.";
  for (size_t i = key_bits_.size(); i < tiers.layers.size(); ++i) {
    const std::string layer = std::to_string(i);
    key_bits_.push_back(&metrics_.Gauge("stria_worker_tier_bits", kHelp, {{"layer", layer}, {"tensor", "keys"}}));
    value_bits_.push_back(&metrics_.Gauge("stria_worker_tier_bits", kHelp, {{"layer", layer}, {"tensor", "values"}}));
  }
  for (size_t i = 0; i < tiers.layers.size(); ++i) {
    key_bits_[i]->Set(Bits(tiers.layers[i].keys));
    value_bits_[i]->Set(Bits(tiers.layers[i].values));
  }
}

}  // namespace stria
