// The outer loop: operators ask for next-token KL, and the loop finds the τ0 (under `budget` the KL budget) that gives it, from what
// workers measure on shadowed requests. Pure. PI in velocity form on the logarithm of the value, so that
//   the hand-over is bumpless: it begins at the pinned value, and moves only from there;
//   a clamped value winds nothing up: what it cannot move by is not remembered.
// It counts measured tokens, not time: silence moves nothing. It is slow, because pages keep their widths: what is measured now was
// sealed under the values of up to a sequence's length ago.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "controller/settings.h"
#include "proto/telemetry.h"

namespace stria {

// A mean over tokens in which the past fades: its weight falls to 1/e over `memory` tokens.
class TokenMean {
 public:
  TokenMean() = default;
  TokenMean(double mean, double weight) : mean_(mean), weight_(weight) {}  // from a snapshot

  void Add(double tokens, double sum, double memory);
  bool valid() const { return weight_ > 0; }
  double mean() const { return mean_; }
  double weight() const { return weight_; }  // in tokens, at most about `memory`
  friend bool operator==(const TokenMean&, const TokenMean&) = default;

 private:
  double mean_ = 0, weight_ = 0;
};

struct QualityLoop {
  bool engaged = false;
  double log_value = 0;         // ln of the value in force; meaningless while not engaged
  std::optional<double> error;  // of the step before
  double recorded = 0;          // log_value of the newest step in the history
  friend bool operator==(const QualityLoop&, const QualityLoop&) = default;
};

// What is known about the quality of one model's caches.
struct QualityState {
  uint64_t tokens = 0;                        // scored, ever
  TokenMean recent;                           // of what the loop steers by
  std::map<uint32_t, TokenMean> by_length;    // by the bucket's lower end
  QualityLoop loop;
  // Not kept over a restart: tokens that may still move the loop, so that a large fleet, whose pages are no younger than
  // a single worker's, is not steered faster.
  double allowance = 0;
  bool paced = false;
  MonotonicTime last{};
};

// One entry of the history: the loop has moved by two per cent or more since the one before.
struct LoopStep {
  double unix_seconds = 0;
  std::string model = "";
  double value = 0;     // τ0, or the KL budget
  double kl = 0;        // measured, recent mean
  uint64_t tokens = 0;  // scored by then
  friend bool operator==(const LoopStep&, const LoopStep&) = default;
};

// What the policy's rule is about, as operators pinned it: `tau` or `kl_budget`.
double PinnedValue(const Settings& settings);

// Settings with the loop's value in place of the pinned one, where there is a target and the loop has begun.
Settings InForce(const QualityLoop& loop, const Settings& settings);

// Folds readings in. Their sum of tokens.
double Measure(QualityState& state, std::span<const QualityReading> readings);

// Moves the loop after Measure() told of so many tokens. Nothing without a target, or before enough was measured. A step that belongs
// into the history comes back without time and model.
std::optional<LoopStep> StepLoop(QualityState& state, double tokens, const Settings& settings, MonotonicTime now);

// Operators changed the settings. A pinned value that was moved by hand, another policy or no target end the loop: the next one begins
// at what is pinned then. Another target goes on from where the loop is.
void HandOver(QualityLoop& loop, const Settings& before, const Settings& after);

// Which end of its range holds the loop back: −1 the lower, 1 the upper, 0 none.
int AtBound(const QualityLoop& loop, const Settings& settings);

}  // namespace stria
