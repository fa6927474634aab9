#include "worker/prefill_plan.h"

#include <algorithm>

namespace stria {
namespace {

constexpr double kLearn = 0.1;  // weight of the newest unit

// The tokens that run through a group of layers before the rest does.
uint32_t SegmentEnd(const PromptShape& shape, uint32_t begin) {
  return shape.evicted > 0 && begin < shape.original ? shape.original : shape.tokens;
}
uint32_t SegmentBegin(const PromptShape& shape, uint32_t begin) {
  return shape.evicted > 0 && begin >= shape.original ? shape.original : 0;
}

PrefillUnit UnitAt(const PromptShape& shape, uint32_t chunk, int layer, uint32_t begin) {
  const uint32_t segment = SegmentBegin(shape, begin);
  const uint32_t border = segment + ((begin - segment) / chunk + 1) * chunk;
  return {layer, begin, std::min(border, SegmentEnd(shape, begin))};
}

}  // namespace

PrefillUnit FirstUnit(const PromptShape& shape, uint32_t chunk) { return UnitAt(shape, chunk, 0, shape.shared); }

PrefillUnit NextUnit(const PromptShape& shape, const CachePlan& plan, uint32_t chunk, const PrefillUnit& done) {
  const uint32_t segment_end = SegmentEnd(shape, done.begin);
  if (done.end < segment_end) return UnitAt(shape, chunk, done.layer, done.end);
  const uint32_t segment_begin = std::max(SegmentBegin(shape, done.begin), shape.shared);
  if (static_cast<size_t>(done.layer) + 1 < plan.GroupEnd(done.layer))
    return UnitAt(shape, chunk, done.layer + 1, segment_begin);
  if (segment_end < shape.tokens)
    return UnitAt(shape, chunk, static_cast<int>(plan.Anchor(done.layer)), segment_end);
  return UnitAt(shape, chunk, done.layer + 1, shape.shared);
}

PrefillCost::PrefillCost(const ModelConfig& model)
    : layers_(model.layers),
      dense_(double(model.hidden) * (2.0 * model.q_width() + 2.0 * model.kv_width() + 3.0 * model.ffn)),
      attention_(2.0 * model.q_width()) {}

double PrefillCost::UnitWork(uint32_t begin, uint32_t end) const { return LayerWork(end) - LayerWork(begin); }

double PrefillCost::RemainingWork(const PrefillProgress& progress) const {
  return (layers_ - progress.layer) * UnitWork(progress.shared, progress.tokens) -
         UnitWork(progress.shared, progress.begin);
}

void PrefillCost::Observe(double work, double seconds) {
  const double rate = seconds / work;
  seconds_per_work_ = observed_ ? seconds_per_work_ + kLearn * (rate - seconds_per_work_) : rate;
  observed_ = true;
}

size_t NextPrompt(const PrefillCost& cost, std::span<const PrefillProgress> prompts, uint64_t unit_number) {
  const bool oldest = unit_number % kOldestShare == kOldestShare - 1;
  size_t best = 0;
  for (size_t i = 1; i < prompts.size(); ++i) {
    const PrefillProgress &a = prompts[i], &b = prompts[best];
    const double work_a = oldest ? 0 : cost.RemainingWork(a), work_b = oldest ? 0 : cost.RemainingWork(b);
    if (work_a < work_b || (work_a == work_b && a.order < b.order)) best = i;
  }
  return best;
}

}  // namespace stria
