// Worker → controller: canary firings, and what shadowed requests measured. May be lost, so frames are numbered and gaps counted.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace stria {

enum class CacheKind : uint8_t { kPlain, kLatent };

struct LayerReading {
  uint32_t layer = 0;
  CacheKind kind = CacheKind::kPlain;
  // KL in nats at INT2, INT4, INT8; mean over query heads and sampled sequences, each sequence divided by its own √(L/L0).
  std::array<float, 3> kl{};
};

// What every frame says of its sender.
struct TelemetryHeader {
  std::string worker;
  uint64_t incarnation = 0;
  std::string model;          // fingerprint
  uint32_t rank = 0, ranks = 1;
  uint64_t number = 0;        // 1, 2, 3, … per incarnation, frames of all kinds together
  uint64_t epoch = 0;         // tier vector in force
};

// One canary firing.
struct CanaryFrame : TelemetryHeader {
  uint64_t step = 0;          // decode step that fired
  uint32_t sequences = 0;     // sampled sequences with enough valid keys
  uint64_t tokens = 0;        // sum of their lengths
  double cost_seconds = 0;    // time spent on the firing
  std::vector<LayerReading> readings;
};

// Next-token KL of the tiered cache against an FP16 cache of the same tokens, over the positions of contexts from `length` tokens on.
struct QualityReading {
  uint32_t length = 0;  // lower end of the bucket: a power of two; the next one's is twice as long
  uint64_t tokens = 0;  // positions scored; never 0
  double kl = 0;        // their sum, nats
};

// What shadowed sequences scored since the frame before: only positions most of whose cache (¾) was quantised.
struct QualityFrame : TelemetryHeader {
  std::vector<QualityReading> readings;  // by length, ascending
};

}  // namespace stria
