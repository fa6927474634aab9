// Worker → controller: one canary firing. May be lost, so frames are numbered and gaps counted.
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

struct CanaryFrame {
  std::string worker;
  uint64_t incarnation = 0;
  std::string model;          // fingerprint
  uint32_t rank = 0, ranks = 1;
  uint64_t number = 0;        // 1, 2, 3, … per incarnation
  uint64_t epoch = 0;         // tier vector in force
  uint64_t step = 0;          // decode step that fired
  uint32_t sequences = 0;     // sampled sequences with enough valid keys
  uint64_t tokens = 0;        // sum of their lengths
  double cost_seconds = 0;    // time spent on the firing
  std::vector<LayerReading> readings;
};

}  // namespace stria
