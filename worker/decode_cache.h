// The LayerCache of one decode step: one row per sequence, appended to its ring, then attended over its pages
// and tail.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/attention/decode_attention.h"
#include "kernels/target.h"
#include "model/layer_cache.h"
#include "worker/cache_layout.h"
#include "worker/canary_probe.h"
#include "worker/sequence_cache.h"

namespace stria {

class DecodeCache final : public LayerCache {
 public:
  DecodeCache(const CacheLayout& layout, Target target, int threads, uint32_t max_sequences);

  // Plans a step of these sequences, row i being the next token of batch[i]. Each has the page that this
  // token may fill. `probe`, when given, is armed and sees the step's queries.
  void Begin(std::span<SequenceCache* const> batch, CanaryProbe* probe);
  void AppendAndAttend(int layer, const AttentionRows& rows) override;
  // Counts the tokens and seals the tails that are full now, all layers in one team. Returns pages sealed.
  uint64_t End();

 private:
  const CacheLayout& layout_;
  const Target target_;
  const int threads_;
  std::unique_ptr<DecodeAttention> attention_;
  std::vector<SequenceCache*> batch_;
  std::vector<SequenceKv> views_;  // [layers, batch]
  std::vector<int> tokens_;        // [batch], the new one included
  std::vector<SequenceCache*> full_;
  CanaryProbe* probe_ = nullptr;
};

}  // namespace stria
