// Drives the controller's own policies with streams of recorded firings and counts what an operator would notice.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "controller/calibration.h"
#include "controller/tier_policy.h"
#include "eval/canary_recording.h"

namespace stria {

// A rule to compare: the policy's code and its settings, tau aside.
struct Rule {
  std::string name;
  Settings settings;
  bool calibrated = false;  // starts from the calibration
  uint32_t votes = 0;       // > 0: each layer takes the width that most of its last `votes` single readings ask for
};

Rule SeedRule();        // EchoKV's: EMA 0.1, argmin
Rule HysteresisRule();  // up at once, down below 0.8 τ for 3 firings
Rule VotingRule(uint32_t votes);
Rule BandedRule();      // the default settings, from a calibration

// What the reading's reference keys are.
enum class Reference {
  kRing,   // the last keys as they were computed
  kCache,  // the last keys as the cache holds them: at the width in force
};

// Firings in the order in which they arrive.
using Stream = std::vector<const RecordedFiring*>;

// `firings` firings of one workload: its texts in random order, each from its first to its last recorded firing, again and again.
Stream MakeStream(std::span<const RecordedFiring> recording, const std::string& workload, size_t firings, uint64_t seed);

struct Trace {
  std::vector<double> bits;               // after each firing: mean width over layers, keys and values
  std::vector<std::vector<Width>> keys;   // after each firing, by layer
  std::vector<uint32_t> flips;            // at each firing: layers whose width changed, their first decision aside
  uint32_t longest_above = 0;             // firings in a row with a layer's EMA at its width above 1.25 τ
  double above_share = 0;                 // share of (firing, layer) with the ring's EMA at the layer's width above 1.25 τ
};

struct SimulationOptions {
  double tau = 0.022;
  Reference reference = Reference::kRing;
  uint64_t ulp_seed = 0;  // not 0: each reading is moved by one unit in the last place, up or down or not
};

// `calibration` may be nullptr if the rule does not start from one.
Trace Simulate(const Rule& rule, const Calibration* calibration, const Stream& stream, const SimulationOptions& options);

}  // namespace stria
