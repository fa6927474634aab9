#include "worker/canary_probe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"

namespace stria {
namespace {

// Streams of the generator.
constexpr uint64_t kFiring = 0, kSampling = 1;

}  // namespace

CanaryProbe::CanaryProbe(const CacheLayout& layout, Target target, int threads, uint64_t seed,
                         const Clock& clock)
    : layout_(layout),
      target_(target),
      threads_(threads),
      seed_(seed),
      clock_(clock),
      queries_(size_t(layout.layers()) * kMaxSequences * layout.shape().heads * layout.shape().head_dim),
      readings_(size_t(layout.layers()) * kMaxSequences) {}

bool CanaryProbe::Fires(const TierVector& tiers, uint64_t step) const {
  return !tiers.frozen && Uniform(seed_, kFiring, step) < tiers.canary_rate;
}

bool CanaryProbe::Arm(std::span<SequenceCache* const> batch, uint64_t step) {
  const MonotonicTime begin = clock_.Now();
  step_ = step;
  rows_.clear();
  for (size_t i = 0; i < batch.size(); ++i)
    if (batch[i]->ring_keys() + 1 >= kCanaryMinKeys) rows_.push_back(i);
  // The first few places of a random permutation.
  for (size_t i = 0; i < std::min(rows_.size(), kMaxSequences); ++i) {
    const double u = Uniform(seed_, kSampling, step * kMaxSequences + i);
    std::swap(rows_[i], rows_[i + static_cast<size_t>(u * static_cast<double>(rows_.size() - i))]);
  }
  if (rows_.size() > kMaxSequences) rows_.resize(kMaxSequences);
  sequences_.clear();
  for (size_t row : rows_) sequences_.push_back(batch[row]);
  cost_ = clock_.Now() - begin;
  return !rows_.empty();
}

void CanaryProbe::Capture(int layer, const float* q) {
  const MonotonicTime begin = clock_.Now();
  const size_t width = size_t(layout_.shape().heads) * layout_.shape().head_dim;
  for (size_t i = 0; i < rows_.size(); ++i)
    std::memcpy(queries_.data() + (layer * kMaxSequences + i) * width, q + rows_[i] * width,
                width * sizeof(float));
  cost_ += clock_.Now() - begin;
}

CanaryFrame CanaryProbe::Read(const TierVector& tiers) {
  const MonotonicTime begin = clock_.Now();
  const size_t width = size_t(layout_.shape().heads) * layout_.shape().head_dim;
  const int sampled = static_cast<int>(rows_.size());
  const int jobs = layout_.layers() * sampled;
#pragma omp parallel for num_threads(threads_)
  for (int job = 0; job < jobs; ++job) {
    const int layer = job / sampled, i = job % sampled;
    const size_t place = layer * kMaxSequences + i;
    const auto anchor = static_cast<int>(sequences_[i]->plan().Anchor(layer));
    CanaryReading(target_, layout_.shape(), sequences_[i]->key_ring(anchor),
                  static_cast<int>(sequences_[i]->ring_keys()), queries_.data() + place * width,
                  readings_[place].data());
  }
  CanaryFrame frame;
  frame.epoch = tiers.epoch;
  frame.step = step_;
  frame.sequences = static_cast<uint32_t>(sampled);
  for (const SequenceCache* sequence : sequences_) frame.tokens += sequence->tokens();
  for (int layer = 0; layer < layout_.layers(); ++layer) {
    std::array<double, kCanaryWidths> sum{};
    int holding = 0;
    for (int i = 0; i < sampled; ++i) {
      const SequenceCache& sequence = *sequences_[i];
      if (!sequence.plan().Holds(layer)) continue;
      ++holding;
      const double length = std::sqrt(sequence.tokens() / double(tiers.reference_length));
      for (int b = 0; b < kCanaryWidths; ++b) sum[b] += GroupReading(layer, i, b) / length;
    }
    if (holding == 0) continue;
    LayerReading& out = frame.readings.emplace_back();
    out.layer = layer;
    for (int b = 0; b < kCanaryWidths; ++b) out.kl[b] = static_cast<float>(sum[b] / holding);
  }
  frame.cost_seconds = std::chrono::duration<double>(cost_ + (clock_.Now() - begin)).count();
  return frame;
}

// The largest of a layer's own reading and those of the layers that read its cache; NaN if one is.
float CanaryProbe::GroupReading(int layer, int i, int b) const {
  float largest = readings_[layer * kMaxSequences + i][b];
  const size_t end = sequences_[i]->plan().GroupEnd(layer);
  for (size_t follower = layer + 1; follower < end; ++follower) {
    const float reading = readings_[follower * kMaxSequences + i][b];
    if (!std::isnan(largest) && !(reading <= largest)) largest = reading;
  }
  return largest;
}

}  // namespace stria
