#include "controller/quality_loop.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace stria {
namespace {

constexpr double kRecentTokens = 1500, kLengthTokens = 20'000;
constexpr double kLeastTokens = 256;  // measured before the loop moves
// The target is a ceiling: the loop aims a tenth lower, and stands still within a tenth of that.
constexpr double kAim = 0.9, kDeadBand = 0.1;
constexpr double kMostError = 1.2;  // in logarithms
// Per unit of error: at once, and for every 1,000 tokens. Quality is restored three times as fast as it is spent.
constexpr double kProportional = 0.15, kIntegral = 0.1, kRestore = 3;
constexpr double kTokensPerSecond = 200, kBurst = 1000;
constexpr double kWorthRecording = 0.02;

struct Range {
  double low, high;
};
Range RangeOf(const Settings& settings) {
  const double pinned = std::log(PinnedValue(settings)), span = std::log(settings.target_range);
  return {pinned - span, pinned + span};
}

double ErrorOf(double measured, double target) {
  const double aim = kAim * target;
  const double error = std::log(aim / std::max(measured, aim * 1e-6));
  return std::abs(error) <= kDeadBand ? 0 : std::clamp(error, -kMostError, kMostError);
}

// How many of the tokens may move the loop now.
double Pace(QualityState& state, double tokens, MonotonicTime now) {
  if (!std::exchange(state.paced, true)) {
    state.allowance = kBurst;
  } else {
    const double seconds = std::chrono::duration<double>(now - state.last).count();
    state.allowance = std::min(kBurst, state.allowance + std::max(0.0, seconds) * kTokensPerSecond);
  }
  state.last = now;
  const double taken = std::min(tokens, state.allowance);
  state.allowance -= taken;
  return taken;
}

}  // namespace

void TokenMean::Add(double tokens, double sum, double memory) {
  const double kept = weight_ * std::exp(-tokens / memory);
  mean_ = (mean_ * kept + sum) / (kept + tokens);
  weight_ = kept + tokens;
}

double PinnedValue(const Settings& settings) {
  return settings.policy == PolicyKind::kBudget ? settings.kl_budget : settings.tau;
}

Settings InForce(const QualityLoop& loop, const Settings& settings) {
  Settings in_force = settings;
  if (settings.target_kl == 0 || !loop.engaged) return in_force;
  (settings.policy == PolicyKind::kBudget ? in_force.kl_budget : in_force.tau) = std::exp(loop.log_value);
  return in_force;
}

double Measure(QualityState& state, std::span<const QualityReading> readings) {
  double tokens = 0, sum = 0;
  for (const QualityReading& reading : readings) {
    const auto count = static_cast<double>(reading.tokens);
    tokens += count;
    sum += reading.kl;
    state.by_length[reading.length].Add(count, reading.kl, kLengthTokens);
    state.tokens += reading.tokens;
  }
  if (tokens > 0) state.recent.Add(tokens, sum, kRecentTokens);
  return tokens;
}

std::optional<LoopStep> StepLoop(QualityState& state, double tokens, const Settings& settings, MonotonicTime now) {
  if (settings.target_kl == 0 || state.recent.weight() < kLeastTokens) return std::nullopt;
  QualityLoop& loop = state.loop;
  const bool begins = !std::exchange(loop.engaged, true);
  if (begins) loop.log_value = loop.recorded = std::log(PinnedValue(settings));
  const double error = ErrorOf(state.recent.mean(), settings.target_kl);
  const double integral = kIntegral * (error < 0 ? kRestore : 1) * error * Pace(state, tokens, now) / 1000;
  const double proportional = kProportional * (error - loop.error.value_or(error));
  const Range range = RangeOf(settings);
  loop.log_value = std::clamp(loop.log_value + proportional + integral, range.low, range.high);
  loop.error = error;
  if (!begins && std::abs(loop.log_value - loop.recorded) < kWorthRecording) return std::nullopt;
  loop.recorded = loop.log_value;
  return LoopStep{.value = std::exp(loop.log_value), .kl = state.recent.mean(), .tokens = state.tokens};
}

void HandOver(QualityLoop& loop, const Settings& before, const Settings& after) {
  if (after.target_kl == 0 || before.policy != after.policy || PinnedValue(before) != PinnedValue(after)) {
    loop = {};
    return;
  }
  if (before.target_kl != after.target_kl) loop.error.reset();
  const Range range = RangeOf(after);
  loop.log_value = std::clamp(loop.log_value, range.low, range.high);
}

int AtBound(const QualityLoop& loop, const Settings& settings) {
  if (settings.target_kl == 0 || !loop.engaged || !loop.error.has_value() || *loop.error == 0) return 0;
  const Range range = RangeOf(settings);
  if (*loop.error < 0 && loop.log_value <= range.low) return -1;
  return *loop.error > 0 && loop.log_value >= range.high ? 1 : 0;
}

}  // namespace stria
