#include "eval/stability/figures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_format.h"

namespace stria {
namespace {

double Mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Deviation(std::span<const double> values) {
  const double mean = Mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

}  // namespace

std::vector<RecordedFiring> EverySecondText(std::span<const RecordedFiring> recording, uint32_t first) {
  std::vector<RecordedFiring> kept;
  for (const RecordedFiring& firing : recording) {
    if (firing.text % 2 == first) kept.push_back(firing);
  }
  return kept;
}

Stationary MeasureStationary(const Setup& setup, const Rule& rule, const std::string& workload, double tau, Reference reference) {
  Stationary result;
  std::vector<double> bits;
  uint64_t flips = 0;
  for (int seed = 1; seed <= setup.seeds; ++seed) {
    const Stream stream = MakeStream(setup.recording, workload, setup.firings, seed);
    const Trace trace = Simulate(rule, setup.calibration, stream, {.tau = tau, .reference = reference});
    flips += std::accumulate(trace.flips.begin(), trace.flips.end(), uint64_t{0});
    bits.push_back(trace.bits.back());
    result.longest_above = std::max(result.longest_above, trace.longest_above);
    result.above_share += trace.above_share / setup.seeds;
  }
  result.flips = 1000.0 * static_cast<double>(flips) / (static_cast<double>(setup.firings) * setup.seeds);
  result.bits = Mean(bits);
  result.spread = Deviation(bits);
  return result;
}

Switches MeasureSwitches(const Setup& setup, const Rule& rule, double tau) {
  Switches result;
  const size_t half = setup.firings;
  uint64_t flips = 0, changed = 0, runs = 0;
  for (const std::string& from : setup.workloads) {
    for (const std::string& to : setup.workloads) {
      if (from == to) continue;
      for (int seed = 1; seed <= setup.seeds; ++seed) {
        Stream stream = MakeStream(setup.recording, from, half, seed);
        const Stream second = MakeStream(setup.recording, to, half, seed + setup.seeds);
        stream.insert(stream.end(), second.begin(), second.end());
        const Trace trace = Simulate(rule, setup.calibration, stream, {.tau = tau});
        const double settled = Mean(std::span(trace.bits).last(half / 4));
        uint32_t firings = 0;
        while (firings < half && std::abs(trace.bits[half - 1 + firings] - settled) > 0.1 * settled) ++firings;
        result.mean_firings += firings;
        result.most_firings = std::max(result.most_firings, firings);
        result.bits_moved += std::abs(trace.bits[half - 1] - settled);
        result.longest_above = std::max(result.longest_above, trace.longest_above);
        flips += std::accumulate(trace.flips.begin() + static_cast<ptrdiff_t>(half), trace.flips.end(), uint64_t{0});
        for (size_t l = 0; l < trace.keys[0].size(); ++l) changed += trace.keys[half - 1][l] != trace.keys.back()[l];
        ++runs;
      }
    }
  }
  result.mean_firings /= static_cast<double>(runs);
  result.bits_moved /= static_cast<double>(runs);
  result.flips_per_layer = changed == 0 ? 0 : static_cast<double>(flips) / static_cast<double>(changed);
  return result;
}

Comparison Compare(const Setup& setup, const Rule& rule, double tau) {
  Comparison result;
  double seed_variance = 0, variance = 0;
  for (const std::string& workload : setup.workloads) {
    const Stationary seed = MeasureStationary(setup, SeedRule(), workload, tau), own = MeasureStationary(setup, rule, workload, tau);
    result.seed_flips += seed.flips, result.flips += own.flips;
    seed_variance += seed.spread * seed.spread, variance += own.spread * own.spread;
    result.longest_above = std::max(result.longest_above, own.longest_above);
  }
  const auto count = static_cast<double>(setup.workloads.size());
  result.seed_spread = std::sqrt(seed_variance / count), result.spread = std::sqrt(variance / count);
  result.seed_switches = MeasureSwitches(setup, SeedRule(), tau);
  result.switches = MeasureSwitches(setup, rule, tau);
  result.longest_above = std::max(result.longest_above, result.switches.longest_above);
  return result;
}

std::vector<std::string> Misses(const Comparison& c) {
  std::vector<std::string> misses;
  if (30 * c.flips > c.seed_flips) misses.push_back(absl::StrFormat("%.3g flips of %.3g", c.flips, c.seed_flips));
  if (2 * c.spread > c.seed_spread + 1e-6) misses.push_back(absl::StrFormat("spread %.3f of %.3f", c.spread, c.seed_spread));
  if (c.switches.most_firings > std::max(2 * c.seed_switches.most_firings, 40u)) {
    misses.push_back(absl::StrFormat("%u firings to adapt", c.switches.most_firings));
  }
  if (c.switches.flips_per_layer > 1.5) misses.push_back(absl::StrFormat("%.2f flips per layer", c.switches.flips_per_layer));
  if (c.longest_above > 3) misses.push_back(absl::StrFormat("%u firings above 1.25 τ", c.longest_above));
  return misses;
}

double MeasureUlpNoise(const Setup& setup, const Rule& rule, double tau) {
  uint64_t differing = 0, all = 0;
  for (const std::string& workload : setup.workloads) {
    for (int seed = 1; seed <= setup.seeds; ++seed) {
      const Stream stream = MakeStream(setup.recording, workload, setup.firings, seed);
      const Trace plain = Simulate(rule, setup.calibration, stream, {.tau = tau});
      const Trace noisy = Simulate(rule, setup.calibration, stream, {.tau = tau, .ulp_seed = static_cast<uint64_t>(seed)});
      for (size_t n = 0; n < stream.size(); ++n) {
        for (size_t l = 0; l < plain.keys[n].size(); ++l) differing += plain.keys[n][l] != noisy.keys[n][l];
        all += plain.keys[n].size();
      }
    }
  }
  return static_cast<double>(differing) / static_cast<double>(all);
}

double MeasureFlipsAtTau(const Rule& rule, double tau, size_t firings, uint64_t seed) {
  const RecordedFiring at_tau{.workload = "at tau", .text = 0, .tokens = 4096, .layers = {{1, static_cast<float>(tau), 1e-4f}}};
  Rule uncalibrated = rule;
  uncalibrated.calibrated = false;
  const Trace trace = Simulate(uncalibrated, nullptr, Stream(firings, &at_tau), {.tau = at_tau.layers[0][1], .ulp_seed = seed});
  return 1000.0 * std::accumulate(trace.flips.begin(), trace.flips.end(), 0.0) / static_cast<double>(firings);
}

}  // namespace stria
