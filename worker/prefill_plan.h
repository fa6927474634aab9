// What a prompt's units are, which prompt runs next, and for how long. A unit is one chunk of one prompt in one layer.
#pragma once

#include <cstdint>
#include <span>

#include "model/model_config.h"
#include "proto/cache_plan.h"

namespace stria {

// A prompt to prefill: the client's, and behind it the tokens that earlier attempts delivered.
struct PromptShape {
  uint32_t tokens = 0;    // in all
  uint32_t original = 0;  // the client's
  uint32_t evicted = 0;   // of the original ones
  uint32_t shared = 0;    // the first ones, whose pages others sealed: not computed. None if any are evicted
};

// Layer by layer, each over all chunks of what is computed, their borders fixed by position. Where tokens are evicted there is a
// border at the original prompt's end: delivered tokens attend to what stays, as they did when they were generated. So the layers
// that share a cache run over the original prompt one after the other, then over the delivered tokens.
struct PrefillUnit {
  int layer = 0;
  uint32_t begin = 0, end = 0;
};
PrefillUnit FirstUnit(const PromptShape& shape, uint32_t chunk);
PrefillUnit NextUnit(const PromptShape& shape, const CachePlan& plan, uint32_t chunk, const PrefillUnit& done);

// How far one prompt has come: layers [0, layer) are done, and tokens [shared, begin) of `layer`.
struct PrefillProgress {
  uint32_t tokens = 0;
  int layer = 0;
  uint32_t begin = 0;
  uint64_t order = 0;  // of arrival
  uint32_t shared = 0;
};

// Predicts seconds from multiply-accumulates, at a rate learnt from the units that ran.
class PrefillCost {
 public:
  explicit PrefillCost(const ModelConfig& model);

  double UnitWork(uint32_t begin,
                  uint32_t end) const;  // dense layers of these rows, and their attention to all before
  double RemainingWork(const PrefillProgress& progress) const;
  double Seconds(double work) const { return work * seconds_per_work_; }
  void Observe(double work, double seconds);

 private:
  double LayerWork(double tokens) const { return tokens * dense_ + tokens * tokens / 2 * attention_; }

  int layers_;
  double dense_;      // per row and layer
  double attention_;  // per (row, key) pair and layer
  double seconds_per_work_ = 1e-11;
  bool observed_ = false;
};

// Index of the prompt whose unit runs next: the one with the least work left, but every kOldestShare-th unit
// the one that came first. So a short prompt never waits for a long one, and a long one is never starved by
// short ones.
inline constexpr uint64_t kOldestShare = 4;
size_t NextPrompt(const PrefillCost& cost, std::span<const PrefillProgress> prompts, uint64_t unit_number);

}  // namespace stria
