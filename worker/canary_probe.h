// One canary firing (DESIGN §5): takes a few sequences' queries of a decode step and reads, layer by layer,
// how far attention over their rings would drift at each width. The ring never saw a tier, so readings are
// absolute.
//
// A layer that inherits is read with its own queries over its anchor's ring, and the anchor takes the largest
// answer; it gets a reading of its own from sequences that do not inherit there, or none.
//
// Queries are copied as the layers pass and read in one team after the step: rings don't change before the
// next append.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "kernels/canary/canary.h"
#include "proto/telemetry.h"
#include "proto/tiers.h"
#include "worker/cache_layout.h"
#include "worker/sequence_cache.h"

namespace stria {

class CanaryProbe {
 public:
  static constexpr size_t kMaxSequences = 4;  // sampled in one firing, so that its cost has a bound

  CanaryProbe(const CacheLayout& layout, Target target, int threads, uint64_t seed, const Clock& clock);

  // Whether this decode step fires: a draw keyed by (seed, step).
  bool Fires(const TierVector& tiers, uint64_t step) const;
  // Samples among the batch the sequences whose rings will hold enough keys with the step's new one. False: there is
  // none.
  bool Arm(std::span<SequenceCache* const> batch, uint64_t step);
  // q [batch, heads, head_dim] of the armed step.
  void Capture(int layer, const float* q);
  // After the step's tokens are counted: readings of the layers that a sampled sequence holds, epoch, step, counts and
  // cost.
  CanaryFrame Read(const TierVector& tiers);

 private:
  float GroupReading(int layer, int i, int b) const;  // of the sampled sequence i at width b

  const CacheLayout& layout_;
  const Target target_;
  const int threads_;
  const uint64_t seed_;
  const Clock& clock_;
  uint64_t step_ = 0;
  Duration cost_{};
  std::vector<size_t> rows_;                                // of the sampled sequences, in the batch
  std::vector<SequenceCache*> sequences_;                   // [rows_]
  std::vector<float> queries_;                              // [layers, kMaxSequences, heads * head_dim]
  std::vector<std::array<float, kCanaryWidths>> readings_;  // [layers, kMaxSequences]
};

}  // namespace stria
