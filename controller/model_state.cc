#include "controller/model_state.h"

#include <cmath>
#include <optional>
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

void Mark(const LayerReading& reading, std::span<Measured> measured) {
  Measured& seen = measured[reading.layer];
  (reading.kind == CacheKind::kPlain ? seen.plain : seen.latent) = true;
}

// Whether a policy would decide alike under both, given the same evidence. Bounds are applied when a vector is made, but a budget
// is spent around them.
bool SameRule(const Settings& a, const Settings& b) {
  return a.policy == b.policy && a.tau == b.tau && a.kl_budget == b.kl_budget && a.promote_band == b.promote_band &&
         a.promote_after == b.promote_after && a.promote_at_once == b.promote_at_once && a.hysteresis == b.hysteresis &&
         a.demote_after == b.demote_after && a.reference_length == b.reference_length && a.keys == b.keys &&
         a.values == b.values && a.pins == b.pins;
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
  state.pool = {};
}

ReadingCounts Observe(ModelState& state, const CanaryFrame& frame, const Settings& settings, const TierPolicy& policy,
                      const Calibration* calibration, MonotonicTime now) {
  std::vector<LayerState>& layers = state.ranks[frame.rank];
  std::vector<Measured> measured(layers.size());
  ReadingCounts counts{};
  std::vector<LayerReading> sound;
  for (const LayerReading& reading : frame.readings) {
    const ReadingVerdict verdict = JudgeReading(reading, measured);
    ++counts[static_cast<size_t>(verdict)];
    if (verdict != ReadingVerdict::kAccepted) continue;
    Mark(reading, measured);
    sound.push_back(reading);
  }
  if (sound.empty()) return counts;
  if (settings.pooled) {
    std::optional<std::vector<LayerReading>> round = state.pool.Add(frame.worker, frame.rank, sound, now);
    if (!round.has_value()) return counts;
    sound = *std::move(round);
    for (const LayerReading& reading : sound) Mark(reading, measured);
  }
  for (const LayerReading& reading : sound) {
    const bool plain = reading.kind == CacheKind::kPlain;
    SmoothedReadings& smoothed = plain ? layers[reading.layer].plain : layers[reading.layer].latent;
    for (size_t i = 0; i < smoothed.size(); ++i) {
      if (plain && calibration != nullptr && !smoothed[i].valid()) {
        smoothed[i] = Ema(CalibratedReading(*calibration, settings, reading.layer, i), 1);
      }
      smoothed[i].Observe(reading.kl[i], settings.alpha);
    }
  }
  ++state.firings;
  state.last_firing = now;
  state.fired = state.unsaved = true;
  policy.Decide({settings, Occasion::kFiring, measured, calibration}, layers);
  return counts;
}

void ApplySettings(ModelState& state, const Settings& before, const Settings& after, const TierPolicy& policy,
                   const Calibration* calibration, MonotonicTime now) {
  state.unsaved = true;
  const Settings rule_before = InForce(state.quality.loop, before);
  HandOver(state.quality.loop, before, after);
  const Settings rule = InForce(state.quality.loop, after);
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
    state.pool = {};
  }
  const bool was_held = before.frozen || PhaseOf(state, before) == Phase::kHeld;
  if (before.freeze_after != after.freeze_after || before.frozen) state.warmup_from = state.firings;
  if (after.frozen) return;
  if (!was_held && SameRule(rule_before, rule)) return;
  // While held no reading came in, however short it was.
  const bool fresh = !was_held && state.fired && now - state.last_firing <= kSilence;
  const Occasion occasion = fresh ? Occasion::kSettings : Occasion::kSettingsStale;
  for (auto& layers : state.ranks) policy.Decide({rule, occasion, {}, calibration}, layers);
}

const char* Name(Phase phase) {
  switch (phase) {
    case Phase::kLive: return "live";
    case Phase::kWarmup: return "warmup";
    case Phase::kHeld: return "held";
  }
  return "?";
}

Phase PhaseOf(const ModelState& state, const Settings& settings) {
  if (settings.freeze_after == 0) return Phase::kLive;
  return state.firings - state.warmup_from < settings.freeze_after ? Phase::kWarmup : Phase::kHeld;
}

std::vector<LayerTier> RecommendedTiers(const ModelState& state, const Settings& settings) {
  std::vector<Width> votes(state.ranks.size());
  const auto majority = [&](uint32_t layer, Width LayerTier::*field) {
    for (size_t r = 0; r < votes.size(); ++r) votes[r] = state.ranks[r][layer].tier.*field;
    return MajorityWidth(votes);
  };
  std::vector<LayerTier> tiers;
  for (uint32_t l = 0; l < state.layer_count(); ++l) {
    const LayerPin bounds = BoundsOf(settings, l);
    tiers.push_back({.keys = Clamp(majority(l, &LayerTier::keys), bounds.keys),
                     .values = Clamp(majority(l, &LayerTier::values), bounds.values),
                     .guard_plain = majority(l, &LayerTier::guard_plain),
                     .guard_latent = majority(l, &LayerTier::guard_latent)});
  }
  return tiers;
}

TierVector WantedVector(const ModelState& state, const Settings& settings) {
  TierVector vector;
  vector.model = state.model;
  vector.canary_rate = settings.canary_rate;
  vector.reference_length = settings.reference_length;
  vector.frozen = settings.frozen || PhaseOf(state, settings) == Phase::kHeld;
  vector.layers = settings.recommend_only ? state.published.layers : RecommendedTiers(state, settings);
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
