#include "model/transformer/rotary_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace stria {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

double Llama3(double frequency, const RopeScaling& scaling) {
  const double wavelength = kTwoPi / frequency;
  if (wavelength > scaling.original_context / scaling.low_freq_factor) return frequency / scaling.factor;
  if (wavelength < scaling.original_context / scaling.high_freq_factor) return frequency;
  const double smooth = (scaling.original_context / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

// The (fractional) pair that turns `rotations` times over the original context.
double PairOfRotations(double rotations, const ModelConfig& config) {
  return config.rope_dims * std::log(config.rope.original_context / (rotations * kTwoPi)) /
         (2 * std::log(config.rope_base));
}

void StretchYarn(const ModelConfig& config, std::vector<double>& frequencies) {
  const double low = std::max(0.0, std::floor(PairOfRotations(config.rope.beta_fast, config)));
  const double high = std::min(config.rope_dims - 1.0, std::ceil(PairOfRotations(config.rope.beta_slow, config)));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
    frequencies[i] *= (1 - interpolated) + interpolated / config.rope.factor;
  }
}

}  // namespace

std::vector<double> RotaryFrequencies(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope;
  std::vector<double> frequencies(config.rope_dims / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(static_cast<double>(config.rope_base), -2.0 * static_cast<double>(i) / config.rope_dims);
  }
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone:
      break;
    case RopeScaling::Kind::kLinear:
      for (double& frequency : frequencies) frequency /= scaling.factor;
      break;
    case RopeScaling::Kind::kLlama3:
      for (size_t i = 0; i < frequencies.size(); ++i) {
        frequencies[i] = scaling.frequency_divisors.empty() ? Llama3(frequencies[i], scaling)
                                                            : frequencies[i] / scaling.frequency_divisors[i];
      }
      break;
    case RopeScaling::Kind::kYarn:
      StretchYarn(config, frequencies);
      break;
  }
  return frequencies;
}

double RotaryMagnitude(const RopeScaling& scaling) {
  if (scaling.kind != RopeScaling::Kind::kYarn) return 1;
  return scaling.attention_factor * (1 + 0.1 * std::log(static_cast<double>(scaling.factor)));
}

RotaryTable::RotaryTable(const ModelConfig& config)
    : pairs_(config.rope_dims / 2), values_(static_cast<size_t>(config.context_length) * 2 * pairs_) {
  const std::vector<double> frequencies = RotaryFrequencies(config);
  const double magnitude = RotaryMagnitude(config.rope);
#pragma omp parallel for schedule(static)
  for (int position = 0; position < config.context_length; ++position) {
    float* cosines = values_.data() + static_cast<size_t>(position) * 2 * pairs_;
    for (int i = 0; i < pairs_; ++i) {
      cosines[i] = static_cast<float>(magnitude * std::cos(position * frequencies[i]));
      cosines[pairs_ + i] = static_cast<float>(magnitude * std::sin(position * frequencies[i]));
    }
  }
}

}  // namespace stria
