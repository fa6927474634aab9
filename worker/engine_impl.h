// The engine's state. engine.cc: taking, dropping and describing sequences; engine_admit.cc: who begins, with
// which memory and which shared pages; engine_turn.cc: what one turn does; engine_shadow.cc:
// shadows.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "worker/cache_layout.h"
#include "worker/canary_probe.h"
#include "worker/decode_cache.h"
#include "worker/engine.h"
#include "worker/page_pool.h"
#include "worker/prefill_cache.h"
#include "worker/prefill_plan.h"
#include "worker/prefix_cache.h"
#include "worker/quality_tally.h"
#include "worker/sequence.h"

namespace stria {

class EngineImpl final : public Engine {
 public:
  EngineImpl(Transformer& transformer, const EngineOptions& options, const Clock& clock, CacheLayout layout,
             std::unique_ptr<PagePool> pool);

  absl::Status Start(const StartSequence& start) override;
  void Cancel(const SequenceName& name) override;
  absl::Status ApplyTiers(const TierVector& tiers) override;
  const TierVector& tiers() const override { return tiers_; }
  bool HasWork() const override { return !sequences_.empty() || !ended_.empty(); }
  TurnResult Turn() override;
  EngineStats stats() const override;
  std::vector<SequenceInfo> Describe() const override;
  CacheReport ReportCache(uint64_t sequence) const override;
  std::vector<LayerBytes> layer_bytes() const override { return layout_.layer_bytes(); }
  uint64_t staging_bytes_per_token() const override { return layout_.staging_bytes_per_token(); }

 private:
  using Sequences = std::vector<Sequence*>;

  absl::Status Validate(const StartSequence& start) const;
  void EndOutsideTurn(const Sequence& sequence, FinishReason reason);

  // engine_admit.cc
  enum class Admission { kBegins, kWaits, kNoRoom };
  void Admit();
  Admission TryToBegin(Sequence& sequence);
  bool WorthWaiting(const Sequence& sequence) const;
  void TakeMemory(Sequence& sequence);
  std::unique_ptr<SequenceCache> NewCache(const Sequence& sequence);
  void ShareNothing(Sequence& sequence);
  void KeepPages(Sequence& sequence);
  bool EvictIdle();

  // engine_shadow.cc
  bool Draw(const Sequence& sequence) const;
  bool WantsShadow(const Sequence& sequence) const;
  uint64_t ShadowBytes() const;
  uint64_t ShadowLimit() const;
  void BeginShadows();
  void DropShadow(Sequence& sequence);
  bool DropNewestShadow();
  void GrowShadows(const Sequences& batch);
  void AddShadowRows(const Sequences& batch);
  void ScoreShadows(const Sequences& batch);
  void ReportQuality();

  // engine_turn.cc
  void Prefill();
  void RunUnit(Sequence& sequence);
  void FinishPrompt(Sequence& sequence);
  void Decode(Sequences batch);
  void Grow(Sequence& sequence);  // it may have to go itself
  Sequence& Victim();
  void SendBack(Sequence& sequence);
  void SampleRows(const Sequences& batch, const float* residual, RowRole role);
  void Choose(Sequence& sequence, std::optional<TokenOut> token);
  void End(Sequence& sequence, FinishReason reason, std::string message = "");
  SequenceOutput& OutputOf(const Sequence& sequence);

  Transformer& transformer_;
  const EngineOptions options_;
  const Clock& clock_;
  const ModelConfig& model_;
  const uint32_t max_context_;
  const CacheLayout layout_;
  const std::unique_ptr<PagePool> pool_;
  const CachePlan shadow_plan_;  // FP16
  PageCounts page_counts_, shadow_pages_;
  std::optional<PrefixCache> prefix_cache_;
  PrefillCache prefill_cache_;
  DecodeCache decode_cache_;
  CanaryProbe probe_;
  PrefillCost prefill_cost_;
  TierVector tiers_;

  std::map<SequenceName, std::unique_ptr<Sequence>> sequences_;
  // Each known sequence is in one of these.
  Sequences waiting_, active_;    // active: prefilling or running; both in order of arrival
  uint32_t overtakes_ = 0;        // of the first waiting sequence
  bool admission_stale_ = false;  // memory or waiting sequences changed since admission last failed
  uint64_t next_order_ = 0;
  uint64_t prefill_units_ = 0;
  double step_seconds_ = 0;  // of an undisturbed decode step, smoothed
  EngineStats stats_;
  QualityTally tally_;

  std::vector<SequenceOutput> ended_;  // outside a turn
  TurnResult result_;                  // of the turn under way

  // Scratch of a step, sized once.
  struct ShadowRow {
    size_t row;   // of its sequence in the batch
    bool counts;  // most of what it attends to is quantised
  };
  std::vector<float> residual_;  // [MostDecodeRows(), hidden]
  std::vector<float> logits_;    // [kHeadRows, vocab]
  std::vector<float> shadow_residual_, shadow_logits_;  // [shadow and sequence for each shadow, hidden or vocab]
  std::vector<ShadowRow> shadowed_;
  std::vector<int32_t> tokens_, positions_;
  std::vector<SequenceCache*> caches_;
  std::vector<std::optional<TokenOut>> chosen_;
  std::vector<SamplerScratch> scratch_;  // [threads]
};

}  // namespace stria
