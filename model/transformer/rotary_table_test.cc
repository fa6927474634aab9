#include "model/transformer/rotary_table.h"

#include <cmath>
#include <numbers>

#include "gtest/gtest.h"

namespace stria {
namespace {

ModelConfig Config(float base, int dims, int context) {
  ModelConfig config;
  config.rope_base = base;
  config.rope_dims = dims;
  config.context_length = context;
  return config;
}

TEST(RotaryFrequencies, FallGeometrically) {
  const auto frequencies = RotaryFrequencies(Config(10000, 8, 16));
  ASSERT_EQ(frequencies.size(), 4u);
  EXPECT_DOUBLE_EQ(frequencies[0], 1);
  EXPECT_NEAR(frequencies[1], 0.1, 1e-15);
  EXPECT_NEAR(frequencies[2], 0.01, 1e-16);
  EXPECT_NEAR(frequencies[3], 0.001, 1e-17);
}

TEST(RotaryFrequencies, Linear) {
  ModelConfig config = Config(10000, 4, 16);
  config.rope.kind = RopeScaling::Kind::kLinear;
  config.rope.factor = 4;
  const auto frequencies = RotaryFrequencies(config);
  EXPECT_DOUBLE_EQ(frequencies[0], 0.25);
  EXPECT_NEAR(frequencies[1], 0.0025, 1e-17);
}

// Llama 3.1: factor 8, original context 8,192: wavelengths under 2,048 stay, over 8,192 are stretched 8
// times.
TEST(RotaryFrequencies, Llama3ByWavelength) {
  ModelConfig config = Config(500000, 128, 131072);
  config.rope.kind = RopeScaling::Kind::kLlama3;
  config.rope.factor = 8;
  config.rope.original_context = 8192;
  config.rope.low_freq_factor = 1;
  config.rope.high_freq_factor = 4;
  const auto frequencies = RotaryFrequencies(config);
  const auto plain = RotaryFrequencies(Config(500000, 128, 131072));
  int between = 0;
  for (int i = 0; i < 64; ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 2048) {
      EXPECT_DOUBLE_EQ(frequencies[i], plain[i]);
    } else if (wavelength > 8192) {
      EXPECT_DOUBLE_EQ(frequencies[i], plain[i] / 8);
    } else {
      // The weight of the unstretched frequency rises from 0 at 8,192 to 1 at 2,048, linear in turns.
      const double weight = (8192 / wavelength - 1) / 3;
      EXPECT_NEAR(frequencies[i], plain[i] * (weight + (1 - weight) / 8), 1e-15);
      ++between;
    }
  }
  EXPECT_EQ(between, 6);  // pairs 29 to 34: 2π · 500000^(i / 64) within [2048, 8192]
}

TEST(RotaryFrequencies, Llama3ByTheFilesDivisors) {
  ModelConfig config = Config(10000, 4, 16);
  config.rope.kind = RopeScaling::Kind::kLlama3;
  config.rope.frequency_divisors = {1, 32};
  const auto frequencies = RotaryFrequencies(config);
  EXPECT_DOUBLE_EQ(frequencies[0], 1);
  EXPECT_NEAR(frequencies[1], 0.01 / 32, 1e-18);
}

// Qwen2.5's setting: factor 4 over 32,768. Pair i turns 32,768 / (2π) · 10^(-6 i / 64) times: 32 turns at i
// = 23.6 (floor 23), one turn at i = 39.7 (ceiling 40).
TEST(RotaryFrequencies, YarnByParts) {
  ModelConfig config = Config(1e6f, 128, 131072);
  config.rope.kind = RopeScaling::Kind::kYarn;
  config.rope.factor = 4;
  config.rope.original_context = 32768;
  const auto frequencies = RotaryFrequencies(config);
  const auto plain = RotaryFrequencies(Config(1e6f, 128, 131072));
  for (int i = 0; i <= 23; ++i) EXPECT_DOUBLE_EQ(frequencies[i], plain[i]) << i;
  for (int i = 40; i < 64; ++i) EXPECT_DOUBLE_EQ(frequencies[i], plain[i] / 4) << i;
  for (int i = 24; i < 40; ++i) {
    const double stretched = (i - 23) / 17.0;
    EXPECT_NEAR(frequencies[i], plain[i] * (1 - stretched * 0.75), 1e-15) << i;
  }
}

TEST(RotaryTable, AnglesAreExactToFloatAtEveryDistance) {
  for (const int context : {1, 2, 100, 8192, 131072, 1 << 20}) {
    const ModelConfig config = Config(100000, 64, context);
    const RotaryTable table(config);
    const auto frequencies = RotaryFrequencies(config);
    ASSERT_EQ(table.pairs(), 32);
    float cosines[32], sines[32];
    for (int position = 0; position < context; position += 1 + context / 777) {
      table.Angles(position, cosines, sines);
      for (int i = 0; i < 32; ++i) {
        ASSERT_NEAR(cosines[i], std::cos(position * frequencies[i]), 3e-7) << position << " " << i;
        ASSERT_NEAR(sines[i], std::sin(position * frequencies[i]), 3e-7) << position << " " << i;
      }
    }
    table.Angles(context - 1, cosines, sines);
    EXPECT_NEAR(cosines[0], std::cos(context - 1.0), 3e-7);
  }
}

TEST(RotaryTable, YarnScalesCosinesAndSines) {
  ModelConfig config = Config(10000, 4, 64);
  config.rope.kind = RopeScaling::Kind::kYarn;
  config.rope.original_context = 64;
  config.rope.attention_factor = 1.5f;
  const RotaryTable table(config);
  float cosines[2], sines[2];
  table.Angles(37, cosines, sines);
  EXPECT_NEAR(cosines[0], 1.5 * std::cos(37.0), 4e-7);
  EXPECT_NEAR(sines[1], 1.5 * std::sin(0.37), 4e-7);
}

}  // namespace
}  // namespace stria
