// Figures over many simulated runs: what docs/stability.md shows and what the test asserts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "eval/stability/simulate.h"

namespace stria {

// Every second text of each workload, from number `first` (0 or 1) on: a rule is chosen on one half and shown on the other.
std::vector<RecordedFiring> EverySecondText(std::span<const RecordedFiring> recording, uint32_t first);

struct Setup {
  std::span<const RecordedFiring> recording;
  const Calibration* calibration;
  std::vector<std::string> workloads;
  int seeds = 20;
  size_t firings = 1000;  // of a stationary stream; of each half of one that switches
};

// One workload throughout.
struct Stationary {
  double flips = 0;   // per 1,000 firings
  double bits = 0;    // mean over seeds of the final average bits
  double spread = 0;  // their standard deviation
  uint32_t longest_above = 0;
  double above_share = 0;
};
Stationary MeasureStationary(const Setup& setup, const Rule& rule, const std::string& workload, double tau,
                             Reference reference = Reference::kRing);

// From one workload to another, all pairs.
struct Switches {
  double mean_firings = 0;      // until the average bits are first within 10 % of their mean over the last quarter
  uint32_t most_firings = 0;
  double flips_per_layer = 0;   // flips after the switch for each layer whose width differs in the end
  double bits_moved = 0;        // mean absolute change of the average bits
  uint32_t longest_above = 0;
};
Switches MeasureSwitches(const Setup& setup, const Rule& rule, double tau);

// A rule beside EchoKV's at one τ, all workloads together: what is asked of a rule that is to be the default.
struct Comparison {
  double seed_flips = 0, flips = 0;    // per 1,000 firings, summed over the workloads
  double seed_spread = 0, spread = 0;  // root of the mean variance over the workloads
  uint32_t longest_above = 0;          // on stationary and on switching streams
  Switches seed_switches, switches;
};
Comparison Compare(const Setup& setup, const Rule& rule, double tau);

// Why the rule may not be the default by these figures; empty: it may. The bounds: a 30th of EchoKV's flips, half its spread,
// adapted within 40 firings or twice EchoKV's, 1.5 flips per layer that changes, 3 firings above 1.25 τ.
std::vector<std::string> Misses(const Comparison& comparison);

// Share of (firing, layer) whose width differs from the undisturbed run when every reading is off by up to one unit in the last
// place.
double MeasureUlpNoise(const Setup& setup, const Rule& rule, double tau);
// Flips per 1,000 firings of a layer whose every reading at INT4 is τ, up to one unit in the last place.
double MeasureFlipsAtTau(const Rule& rule, double tau, size_t firings, uint64_t seed);

}  // namespace stria
