// What a worker tells Prometheus. docs/metrics.md lists the names.
#pragma once

#include <vector>

#include "base/clock.h"
#include "services/common/metrics.h"
#include "services/worker/sequence_link.h"
#include "services/worker/telemetry_link.h"
#include "services/worker/tier_link.h"
#include "services/worker/worker_identity.h"
#include "worker/engine.h"

namespace stria {

class WorkerMetrics {
 public:
  // All outlive this.
  WorkerMetrics(Metrics& metrics, const WorkerIdentity& identity, const Engine& engine, const SequenceLink& sequences,
                const TierLink& tiers, const TelemetryLink& telemetry, const Clock& clock);

  // After each round of the loop. Step times always; the rest ten times a second, and at once when the work ended.
  void AfterTurn(bool worked);

 private:
  void Refresh(const EngineStats& stats);
  void RefreshTiers();

  Metrics& metrics_;
  const Engine& engine_;
  const SequenceLink& sequences_;
  const TierLink& tiers_;
  const TelemetryLink& telemetry_;
  const Clock& clock_;

  prometheus::Gauge &pool_bytes_, &used_bytes_, &idle_bytes_, &shared_bytes_, &prefix_bytes_, &prefix_entries_, &staging_bytes_,
      &running_, &prefilling_, &epoch_, &frozen_, &canary_rate_, &unacknowledged_, &shadow_bytes_, &shadow_sequences_;
  prometheus::Gauge* pages_[4];  // by width
  prometheus::Counter &steps_, &prompt_tokens_, &decode_tokens_, &prefill_seconds_, &decode_seconds_, &canary_seconds_, &firings_,
      &sealed_, &preemptions_, &evicted_tokens_, &prefix_lookups_, &prefix_hits_, &prefix_tokens_, &prefix_evictions_, &frames_,
      &unsent_frames_, &starts_, &cancels_, &duplicates_, &resends_, &dropped_, &refused_commands_,
      &refused_tiers_, &stale_tiers_, &applied_tiers_, &shadow_rows_, &shadow_scored_, &shadow_kl_, &shadows_begun_, &shadows_dropped_;
  prometheus::Histogram& step_seconds_;
  std::vector<prometheus::Gauge*> key_bits_, value_bits_;  // per layer

  uint64_t last_steps_ = 0;
  double last_decode_seconds_ = 0;
  uint64_t shown_epoch_ = ~uint64_t{0};
  bool worked_ = true;
  MonotonicTime next_refresh_;
};

}  // namespace stria
