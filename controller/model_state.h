// What the controller knows about one model: evidence by rank, the tiers that it wants, and the vector that is in force.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "controller/calibration.h"
#include "controller/layer_state.h"
#include "controller/quality_loop.h"
#include "controller/reading_pool.h"
#include "controller/settings.h"
#include "controller/tier_policy.h"
#include "proto/telemetry.h"
#include "proto/tiers.h"

namespace stria {

// One change of a layer's width.
struct Flip {
  uint64_t epoch = 0;  // of the vector that brought it
  double unix_seconds = 0;
  std::string model;
  uint32_t layer = 0;
  Width from = Width::kFp16, to = Width::kFp16;  // of keys; values follow
  bool first = false;  // the layer's first reading set its tier: recorded, but nothing flapped
  friend bool operator==(const Flip&, const Flip&) = default;
};

enum class ReadingVerdict : uint8_t { kAccepted, kNotFinite, kNegative, kBadLayer, kRepeated };
inline constexpr int kReadingVerdicts = 5;
std::string_view Name(ReadingVerdict verdict);  // for metrics labels: "not_finite"

// Of readings in one frame.
using ReadingCounts = std::array<uint32_t, kReadingVerdicts>;

struct ModelState {
  std::string model;       // fingerprint
  std::string model_name;  // id that clients use
  std::vector<std::vector<LayerState>> ranks;  // [rank][layer]
  TierVector published;    // committed and in force; epoch 0: none yet
  std::vector<uint8_t> published_decided;  // [layer]: a reading had set it by then
  std::vector<uint64_t> flips;             // [layer]
  uint64_t firings = 0;    // frames (rounds, where workers are pooled) that moved an EMA
  QualityState quality;
  uint64_t warmup_from = 0;  // `firings` when the warm-up of `freeze_after` began
  // Frames from before this epoch measured against another reference length (epoch 0 is the default length).
  uint64_t unit_epoch = 0;

  // Not kept over a restart.
  bool active = false;     // a worker of it is or was connected to this process
  bool reissue = false;    // needs a new epoch even if nothing changed
  bool unsaved = false;    // evidence newer than the last snapshot
  MonotonicTime last_firing{};  // meaningless while !fired
  bool fired = false;
  ReadingPool pool;

  static constexpr uint64_t kUnitPending = std::numeric_limits<uint64_t>::max();

  uint32_t layer_count() const { return ranks.empty() ? 0 : static_cast<uint32_t>(ranks[0].size()); }
};

// All FP16, nothing known.
ModelState NewModelState(std::string model, std::string model_name, uint32_t layers, uint32_t ranks);

// The model is now run by other numbers of ranks or layers: evidence is dropped; with the same layers their tiers stay until
// readings say otherwise.
void Reshape(ModelState& state, uint32_t layers, uint32_t ranks);

// Folds a judged frame (or the round that it fills) into the EMAs of its rank and asks the policy. Bad readings are skipped and
// counted one by one, so one broken layer does not blind the others. An EMA starts from `calibration` where there is one. `settings`
// are those in force (InForce()), here alone: everywhere else they are the operators'.
ReadingCounts Observe(ModelState& state, const CanaryFrame& frame, const Settings& settings, const TierPolicy& policy,
                      const Calibration* calibration, MonotonicTime now);

// Settings changed: rescales the EMAs to a new reference length, begins a warm-up, hands the outer loop over, and asks the policy again
// unless frozen.
void ApplySettings(ModelState& state, const Settings& before, const Settings& after, const TierPolicy& policy,
                   const Calibration* calibration, MonotonicTime now);

// Warm-up, freeze, measure (EchoKV's protocol for evaluation): under `freeze_after` a model's vector follows the readings for so
// many firings and is then held, with its canary off, until the settings change.
enum class Phase { kLive, kWarmup, kHeld };
const char* Name(Phase phase);  // "live", "warmup", "held"
Phase PhaseOf(const ModelState& state, const Settings& settings);

// What the policy wants, within bounds and pins: per layer the majority over ranks.
std::vector<LayerTier> RecommendedTiers(const ModelState& state, const Settings& settings);

// The vector that the model should have now: the recommended tiers, or those in force where it may only recommend. The epoch is
// left 0.
TierVector WantedVector(const ModelState& state, const Settings& settings);

// A layer's evidence for people: mean EMA over the ranks that have one, at kReadingWidths; empty before the first reading.
std::vector<double> MeanReadings(const ModelState& state, uint32_t layer, CacheKind kind);

}  // namespace stria
