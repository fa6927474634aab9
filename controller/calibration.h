// What a model's layers cost at each width, measured once per model (`./stria calibrate`) and then taken as given.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace stria {

using WidthCosts = std::array<double, 3>;  // at kReadingWidths

struct LayerCalibration {
  WidthCosts keys{}, values{};  // next-token KL in nats with only these pages of this layer at the width
  WidthCosts canary{};          // mean canary reading on the same text, at L0 = kCalibrationLength
};

// Costs of layers add up, nearly: measured on SmolLM2 in docs/stability.md.
struct Calibration {
  std::string model;  // fingerprint
  std::vector<LayerCalibration> layers;
};

inline constexpr double kCalibrationLength = 4096;

}  // namespace stria
