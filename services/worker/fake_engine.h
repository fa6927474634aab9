// An engine without a model, for tests of the links and the loop: each turn gives every sequence its next token, id·1000 + index.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "worker/engine.h"

namespace stria {

class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(int layers) { tiers_.layers.resize(layers); }

  absl::Status Start(const StartSequence& start) override {
    if (start.prompt[0] < 0) return absl::InvalidArgumentError("prompt token -1 is not in the vocabulary");
    if (running_.emplace(start.name, std::pair(start.delivered, start.max_new_tokens)).second) ++starts;
    return absl::OkStatus();
  }
  void Cancel(const SequenceName& name) override {
    const auto it = running_.find(name);
    if (it == running_.end()) return;
    SequenceOutput& end = ended_.emplace_back();
    end.name = name;
    end.first_index = it->second.first;
    end.finish = FinishReason::kCancelled;
    end.kv.tokens = 5;
    running_.erase(it);
  }
  absl::Status ApplyTiers(const TierVector& tiers) override {
    if (tiers.layers.size() != tiers_.layers.size()) return absl::InvalidArgumentError("layers");
    tiers_ = tiers;
    ++applied;
    return absl::OkStatus();
  }
  const TierVector& tiers() const override { return tiers_; }
  bool HasWork() const override { return !running_.empty() || !ended_.empty(); }

  TurnResult Turn() override {
    TurnResult result;
    result.outputs = std::exchange(ended_, {});
    for (auto it = running_.begin(); it != running_.end();) {
      auto& [next, limit] = it->second;
      SequenceOutput& output = result.outputs.emplace_back();
      output.name = it->first;
      output.first_index = next;
      output.tokens.push_back({.token = static_cast<int32_t>(it->first.id * 1000 + next), .logprob = 0, .top = {}});
      output.epoch = tiers_.epoch;
      ++next;
      if (next >= limit) output.finish = FinishReason::kLength;
      it = next >= limit ? running_.erase(it) : std::next(it);
    }
    ++stats_.steps;
    if (fire) result.canary.emplace();
    if (measure) result.quality.emplace();
    return result;
  }

  EngineStats stats() const override {
    EngineStats stats = stats_;
    stats.running = static_cast<uint32_t>(running_.size());
    return stats;
  }
  std::vector<SequenceInfo> Describe() const override {
    std::vector<SequenceInfo> all;
    for (const auto& [name, state] : running_) {
      all.push_back({.name = name,
                     .tokens = state.first,
                     .prefilling = false,
                     .layers = {{.key_pages = {{Width::kFp16, 0xabcull}, {Width::kInt2, 1}}, .value_pages = {}, .tail = 3}}});
    }
    return all;
  }
  CacheReport ReportCache(uint64_t sequence) const override {
    CacheReport report;
    report.epoch = tiers_.epoch;
    for (const auto& [name, state] : running_) report.sequences.push_back({.name = name, .tokens = state.first});
    report.pages_of = sequence;
    return report;
  }
  std::vector<LayerBytes> layer_bytes() const override { return {}; }
  uint64_t staging_bytes_per_token() const override { return 0; }

  int starts = 0, applied = 0;
  bool fire = false, measure = false;

 private:
  TierVector tiers_;
  std::map<SequenceName, std::pair<uint32_t, uint32_t>> running_;  // next index, limit
  std::vector<SequenceOutput> ended_;
  EngineStats stats_;
};

}  // namespace stria
