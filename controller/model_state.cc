#include "controller/model_state.h"

#include <cmath>
#include <utility>

#include "controller/vote.h"
#include "controller/worker_registry.h"

namespace stria {
namespace {

ReadingVerdict JudgeReading(const LayerReading& reading, std::span<const Measured> measured) {
  if (reading.layer >= measured.size()) return ReadingVerdict::kBadLayer;
  for (const float kl : reading.kl) {
    if (!std::isfinite(kl)) return ReadingVerdict::kNotFinite;
    if (kl < 0) return ReadingVerdict::kNegative;
  }
  const Measured& seen = measured[reading.layer];
  const bool repeated = reading.kind == CacheKind::kPlain ? seen.plain : seen.latent;
  return repeated ? ReadingVerdict::kRepeated : ReadingVerdict::kAccepted;
}

}  // namespace

std::string_view Name(ReadingVerdict verdict) {
  switch (verdict) {
    case ReadingVerdict::kAccepted: return "accepted";
    case ReadingVerdict::kNotFinite: return "not_finite";
    case ReadingVerdict::kNegative: return "negative";
    case ReadingVerdict::kBadLayer: return "bad_layer";
    case ReadingVerdict::kRepeated: return "repeated";
  }
  return "?";
}

ModelState NewModelState(std::string model, std::string model_name, uint32_t layers, uint32_t ranks) {
  ModelState state;
  state.model = std::move(model);
  state.model_name = std::move(model_name);
  state.ranks.assign(ranks, std::vector<LayerState>(layers));
  state.published.layers.assign(layers, LayerTier{});
  state.published_decided.assign(layers, 0);
  state.flips.assign(layers, 0);
  return state;
}

void Reshape(ModelState& state, uint32_t layers, uint32_t ranks) {
  const uint64_t epoch = state.published.epoch;
  std::vector<LayerState> start(layers);
  if (layers == state.layer_count()) {
    for (uint32_t l = 0; l < layers; ++l) {
      start[l].tier = state.published.layers[l];
      start[l].decided = state.published_decided[l] != 0;
    }
    state.ranks.assign(ranks, start);
  } else {
    state = NewModelState(state.model, state.model_name, layers, ranks);
    state.published.epoch = epoch;
  }
  state.reissue = state.unsaved = true;
  state.fired = false;
}

ReadingCounts Observe(ModelState& state, const CanaryFrame& frame, const Settings& settings, const TierPolicy& policy,
                      MonotonicTime now) {
  std::vector<LayerState>& layers = state.ranks[frame.rank];
  std::vector<Measured> measured(layers.size());
  ReadingCounts counts{};
  for (const LayerReading& reading : frame.readings) {
    const ReadingVerdict verdict = JudgeReading(reading, measured);
    ++counts[static_cast<size_t>(verdict)];
    if (verdict != ReadingVerdict::kAccepted) continue;
    const bool plain = reading.kind == CacheKind::kPlain;
    (plain ? measured[reading.layer].plain : measured[reading.layer].latent) = true;
    SmoothedReadings& smoothed = plain ? layers[reading.layer].plain : layers[reading.layer].latent;
    for (size_t i = 0; i < smoothed.size(); ++i) smoothed[i].Observe(reading.kl[i], settings.alpha);
  }
  if (counts[static_cast<size_t>(ReadingVerdict::kAccepted)] == 0) return counts;
  ++state.firings;
  state.last_firing = now;
  state.fired = state.unsaved = true;
  policy.Decide(settings, Occasion::kFiring, measured, layers);
  return counts;
}

void ApplySettings(ModelState& state, const Settings& before, const Settings& after, const TierPolicy& policy,
                   MonotonicTime now) {
  state.unsaved = true;
  if (before.reference_length != after.reference_length) {
    // Readings are divided by √(L/L0), so they grow with √L0.
    const double factor = std::sqrt(static_cast<double>(after.reference_length) / before.reference_length);
    for (auto& layers : state.ranks) {
      for (LayerState& layer : layers) {
        for (Ema& ema : layer.plain) ema.Scale(factor);
        for (Ema& ema : layer.latent) ema.Scale(factor);
      }
    }
    state.unit_epoch = ModelState::kUnitPending;
  }
  if (after.frozen) return;
  const bool rule_changed = before.tau != after.tau || before.hysteresis != after.hysteresis ||
                            before.demote_after != after.demote_after ||
                            before.reference_length != after.reference_length;
  if (!rule_changed && !before.frozen) return;
  // While frozen no reading came in, however short it was.
  const bool fresh = !before.frozen && state.fired && now - state.last_firing <= kSilence;
  const Occasion occasion = fresh ? Occasion::kSettings : Occasion::kSettingsStale;
  for (auto& layers : state.ranks) policy.Decide(after, occasion, {}, layers);
}

TierVector WantedVector(const ModelState& state, const Settings& settings) {
  TierVector vector;
  vector.model = state.model;
  vector.canary_rate = settings.canary_rate;
  vector.reference_length = settings.reference_length;
  vector.frozen = settings.frozen;
  vector.layers.resize(state.layer_count());
  std::vector<Width> votes(state.ranks.size());
  const auto majority = [&](uint32_t layer, Width LayerTier::*field) {
    for (size_t r = 0; r < votes.size(); ++r) votes[r] = state.ranks[r][layer].tier.*field;
    return MajorityWidth(votes);
  };
  for (uint32_t l = 0; l < state.layer_count(); ++l) {
    vector.layers[l] = {.keys = majority(l, &LayerTier::keys),
                        .values = majority(l, &LayerTier::values),
                        .guard_plain = majority(l, &LayerTier::guard_plain),
                        .guard_latent = majority(l, &LayerTier::guard_latent)};
  }
  return vector;
}

std::vector<double> MeanReadings(const ModelState& state, uint32_t layer, CacheKind kind) {
  std::vector<double> sum(kReadingWidths.size());
  int ranks = 0;
  for (const auto& layers : state.ranks) {
    const SmoothedReadings& readings = kind == CacheKind::kPlain ? layers[layer].plain : layers[layer].latent;
    if (!readings[0].valid()) continue;
    ++ranks;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += readings[i].value();
  }
  if (ranks == 0) return {};
  for (double& value : sum) value /= ranks;
  return sum;
}

}  // namespace stria
