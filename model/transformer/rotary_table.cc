#include "model/transformer/rotary_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
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
  const double high =
      std::min(config.rope_dims - 1.0, std::ceil(PairOfRotations(config.rope.beta_slow, config)));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double interpolated =
        std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
    frequencies[i] *= (1 - interpolated) + interpolated / config.rope.factor;
  }
}

}  // namespace

std::vector<double> RotaryFrequencies(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope;
  std::vector<double> frequencies(config.rope_dims / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] =
        std::pow(static_cast<double>(config.rope_base), -2.0 * static_cast<double>(i) / config.rope_dims);
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

RotaryTable::RotaryTable(const ModelConfig& config)
    : pairs_(config.rope_dims / 2),
      fine_bits_((std::bit_width(static_cast<uint32_t>(config.context_length)) + 1) / 2) {
  const std::vector<double> frequencies = RotaryFrequencies(config);
  const auto fill = [&](int count, int step, double magnitude) {
    std::vector<float> table(static_cast<size_t>(count) * 2 * pairs_);
    for (int n = 0; n < count; ++n) {
      float* cosines = table.data() + static_cast<size_t>(n) * 2 * pairs_;
      for (int i = 0; i < pairs_; ++i) {
        const double angle = static_cast<double>(n) * step * frequencies[i];
        cosines[i] = static_cast<float>(magnitude * std::cos(angle));
        cosines[pairs_ + i] = static_cast<float>(magnitude * std::sin(angle));
      }
    }
    return table;
  };
  const int fine = 1 << fine_bits_;
  fine_ = fill(fine, 1, config.rope.kind == RopeScaling::Kind::kYarn ? config.rope.attention_factor : 1);
  coarse_ = fill((config.context_length + fine - 1) / fine, fine, 1);
}

void RotaryTable::Angles(int position, float* cosines, float* sines) const {
  const size_t stride = 2 * static_cast<size_t>(pairs_);
  const float* fine = fine_.data() + (position & ((1 << fine_bits_) - 1)) * stride;
  const float* coarse = coarse_.data() + (position >> fine_bits_) * stride;
  for (int i = 0; i < pairs_; ++i) {
    cosines[i] = coarse[i] * fine[i] - coarse[pairs_ + i] * fine[pairs_ + i];
    sines[i] = coarse[pairs_ + i] * fine[i] + coarse[i] * fine[pairs_ + i];
  }
}

}  // namespace stria
