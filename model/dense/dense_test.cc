// Every backend that this machine runs, against double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "base/float16.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "model/dense/byte_int8.h"
#include "model/dense/dense_layer.h"
#include "model/dense/onednn_float.h"
#include "model/dense/quantize.h"
#include "model/dense/simd_float.h"
#include "model/dense/simd_int8.h"
#include "model/dense/targets_for_test.h"

namespace stria {
namespace {

constexpr int kMaxRows = 40;

struct Shape {
  int out, in;
};
// Shapes as models have them, one wider than a block of exact 32-bit sums, and odd ones around panel and
// vector sizes.
constexpr Shape kShapes[] = {{112, 576}, {48, 1536}, {1, 1}, {16, 2}, {17, 33}, {15, 513}, {100, 1031}};

std::vector<float> Random(uint64_t seed, size_t n, float magnitude) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = magnitude * static_cast<float>(2 * Uniform(seed, 0, i) - 1);
  return values;
}

// Rows of very different size, one of them zero.
std::vector<float> RandomRows(uint64_t seed, int rows, int n) {
  std::vector<float> x = Random(seed, static_cast<size_t>(rows) * n, 1);
  for (int row = 0; row < rows; ++row) {
    const float magnitude = row == 3 ? 0 : std::pow(10.0f, static_cast<float>(row % 7) - 3);
    for (int i = 0; i < n; ++i) x[static_cast<size_t>(row) * n + i] *= magnitude;
    if (n > 40) x[static_cast<size_t>(row) * n + 7] *= 30;  // an outlier channel
  }
  return x;
}

double Dot(const float* w, const float* x, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(w[i]) * x[i];
  return sum;
}

double Peak(const float* x, int n) {
  double peak = 0;
  for (int i = 0; i < n; ++i) peak = std::max(peak, std::abs(static_cast<double>(x[i])));
  return peak;
}

double SumOfMagnitudes(const float* x, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += std::abs(static_cast<double>(x[i]));
  return sum;
}

// The weights as int8 with a scale per channel stores them.
std::vector<float> Requantized(const std::vector<float>& weights, Shape shape) {
  std::vector<float> out(weights.size());
  std::vector<int8_t> q(shape.in);
  for (int row = 0; row < shape.out; ++row) {
    const size_t at = static_cast<size_t>(row) * shape.in;
    const float scale = QuantizeChannel(weights.data() + at, shape.in, q.data());
    for (int i = 0; i < shape.in; ++i) out[at + i] = scale * q[i];
  }
  return out;
}

TEST(Quantize, ChannelErrsByAtMostHalfAStep) {
  const std::vector<float> w = Random(1, 1000, 0.3f);
  std::vector<int8_t> q(w.size());
  const float scale = QuantizeChannel(w.data(), 1000, q.data());
  EXPECT_FLOAT_EQ(scale, static_cast<float>(Peak(w.data(), 1000) / 127));
  for (size_t i = 0; i < w.size(); ++i) ASSERT_LE(std::abs(w[i] - scale * q[i]), 0.5001 * scale) << i;
}

TEST(Quantize, RowErrsByAtMostHalfAStepAtEveryLength) {
  for (const int n : {1, 2, 7, 8, 9, 31, 576}) {
    const std::vector<float> x = Random(n, n, 5);
    std::vector<int16_t> q(n);
    const float scale = QuantizeRow(x.data(), n, q.data());
    EXPECT_FLOAT_EQ(scale, static_cast<float>(Peak(x.data(), n) / kActivationMax));
    for (int i = 0; i < n; ++i) ASSERT_LE(std::abs(x[i] - scale * q[i]), 0.51 * scale) << n << " " << i;
  }
}

TEST(Quantize, ZeroTinyAndBrokenRows) {
  std::vector<int16_t> q(9, 1);
  EXPECT_EQ(QuantizeRow(std::vector<float>(9, 0.0f).data(), 9, q.data()), 0);
  EXPECT_EQ(q, std::vector<int16_t>(9, 0));
  QuantizeRow(std::vector<float>(9, 1e-45f).data(), 9, q.data());
  EXPECT_EQ(q, std::vector<int16_t>(9, 0));
  std::vector<float> broken(9, 1.0f);
  broken[4] = std::numeric_limits<float>::quiet_NaN();
  broken[8] = std::numeric_limits<float>::infinity();
  QuantizeRow(broken.data(), 9, q.data());  // must only not fault
}

TEST(Quantize, DigitsRebuildEveryActivation) {
  std::vector<int16_t> q;
  for (int value = -kActivationMax; value <= kActivationMax; ++value)
    q.push_back(static_cast<int16_t>(value));
  std::vector<int8_t> hi(q.size()), lo(q.size());
  SplitDigits(q.data(), static_cast<int>(q.size()), hi.data(), lo.data());
  for (size_t i = 0; i < q.size(); ++i) ASSERT_EQ(256 * hi[i] + lo[i], q[i]);
  EXPECT_EQ(*std::min_element(hi.begin(), hi.end()), -127);
}

TEST(Quantize, DigitsJoinExactlyBeyondFloatAndInt) {
  const int32_t hi[] = {24'774'144, -1, 3}, lo[] = {-5, 7, -768};
  const float scales[] = {1, 2, 4};
  float y[3];
  for (int i = 0; i < 3; ++i) y[i] = JoinDigits(hi[i], lo[i], 0.5f * scales[i]);
  EXPECT_EQ(y[0], static_cast<float>(256.0 * 24'774'144 - 5) * 0.5f);
  EXPECT_EQ(y[1], -249.0f);
  EXPECT_EQ(y[2], 0.0f);
}

// y must be x · (int8 weights)ᵀ up to the activations' half step in each input, and float rounding.
void ExpectInt8(DenseBackend& backend, Shape shape) {
  SCOPED_TRACE(testing::Message() << backend.name() << " " << shape.out << "×" << shape.in);
  const std::vector<float> weights = Random(shape.in, static_cast<size_t>(shape.out) * shape.in, 0.05f);
  const auto layer = backend.Pack(weights.data(), shape.out, shape.in);
  const std::vector<float> stored = Requantized(weights, shape);
  const std::vector<float> x = RandomRows(17, kMaxRows, shape.in);
  std::vector<double> expected, bound;  // [kMaxRows, out]
  for (int row = 0; row < kMaxRows; ++row) {
    const float* xr = x.data() + static_cast<size_t>(row) * shape.in;
    const double half_step = 0.501 * Peak(xr, shape.in) / kActivationMax;
    for (int o = 0; o < shape.out; ++o) {
      const float* w = stored.data() + static_cast<size_t>(o) * shape.in;
      expected.push_back(Dot(w, xr, shape.in));
      bound.push_back(half_step * SumOfMagnitudes(w, shape.in) + 1e-6 * std::abs(expected.back()) + 1e-30);
    }
  }
  for (const int rows : {1, 2, 3, 4, 5, 8, 31, kMaxRows}) {
    std::vector<float> y(static_cast<size_t>(rows) * shape.out, std::nanf(""));
    layer->Run(rows, x.data(), y.data());
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_LE(std::abs(y[i] - expected[i]), bound[i])
          << rows << " rows, row " << i / shape.out << ", output " << i % shape.out << ", expected "
          << expected[i];
    }
  }
}

TEST(Int8, MatchesDoubleAtEveryThreadCount) {
  for (const int threads : {1, 2, 3}) {
    const auto backend = MakeInt8Backend({.threads = threads, .max_rows = kMaxRows});
    for (const Shape shape : kShapes) ExpectInt8(*backend, shape);
  }
}

TEST(Int8, MatchesDoubleOnEveryInstructionSet) {
  ForEachTarget([] {
    const auto backend = MakeSimdInt8Backend({.threads = 2, .max_rows = kMaxRows});
    for (const Shape shape : kShapes) ExpectInt8(*backend, shape);
  });
}

// What byte_int8.h runs on: the portable target shows on every machine what the instructions must give.
std::vector<Target> ByteTargets() {
  std::vector<Target> targets = {Target::kPortable};
  if (BestTarget() == Target::kAvx512Vnni) targets.push_back(Target::kAvx512Vnni);
  return targets;
}

TEST(Int8, ByteProductsMatchDouble) {
  for (const Target target : ByteTargets()) {
    for (const int threads : {1, 2, 3}) {
      const auto backend = MakeByteInt8Backend({.threads = threads, .max_rows = kMaxRows}, target);
      for (const Shape shape : kShapes) ExpectInt8(*backend, shape);
    }
  }
}

// A prompt row errs by half a step of its group in each input.
TEST(Int8, PromptRowsMatchDoubleAndAreTheSameBitsInAnyCompany) {
  for (const Target target : ByteTargets()) {
    const auto backend = MakeByteInt8Backend({.threads = 2, .max_rows = 1, .max_prompt_rows = kMaxRows}, target);
    ASSERT_TRUE(backend->runs_prompts());
    for (const Shape shape : kShapes) {
      SCOPED_TRACE(testing::Message() << Name(target) << " " << shape.out << "×" << shape.in);
      const std::vector<float> weights = Random(shape.in, static_cast<size_t>(shape.out) * shape.in, 0.05f);
      const std::vector<float> stored = Requantized(weights, shape);
      const std::vector<float> x = RandomRows(17, kMaxRows, shape.in);
      const auto layer = backend->Pack(weights.data(), shape.out, shape.in);
      std::vector<float> y(static_cast<size_t>(kMaxRows) * shape.out, std::nanf("")), alone(shape.out);
      layer->RunPrompt(kMaxRows, x.data(), y.data());
      for (int row = 0; row < kMaxRows; ++row) {
        const float* xr = x.data() + static_cast<size_t>(row) * shape.in;
        for (int o = 0; o < shape.out; ++o) {
          const float* w = stored.data() + static_cast<size_t>(o) * shape.in;
          double bound = 1e-30, magnitude = 0;
          for (int i = 0; i < shape.in; i += 32) {
            const int n = std::min(32, shape.in - i);
            bound += 0.501 * Peak(xr + i, n) / 127 * SumOfMagnitudes(w + i, n);
            magnitude += Peak(xr + i, n) * SumOfMagnitudes(w + i, n);
          }
          ASSERT_LE(std::abs(y[static_cast<size_t>(row) * shape.out + o] - Dot(w, xr, shape.in)),
                    bound + 1e-6 * magnitude)
              << "row " << row << ", output " << o;
        }
        layer->RunPrompt(1, xr, alone.data());
        ASSERT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + static_cast<ptrdiff_t>(row) * shape.out))
            << "row " << row;
      }
    }
  }
}

TEST(Int8, LargestSumsDoNotOverflow) {
  // All products are +127 · 32,512: the worst case of 32-bit sums, over several blocks.
  constexpr int kIn = 4096, kOut = 16;
  const std::vector<float> weights(static_cast<size_t>(kOut) * kIn, 1.0f), x(kIn, 2.0f);
  std::vector<std::unique_ptr<DenseBackend>> backends;
  backends.push_back(MakeSimdInt8Backend({.threads = 1, .max_rows = 1}));
  for (const Target target : ByteTargets())
    backends.push_back(MakeByteInt8Backend({.threads = 1, .max_rows = 1}, target));
  for (const auto& backend : backends) {
    std::vector<float> y(kOut);
    backend->Pack(weights.data(), kOut, kIn)->Run(1, x.data(), y.data());
    for (const float value : y) EXPECT_NEAR(value, 2.0 * kIn, 0.01) << backend->name();
  }
}

TEST(Int8, RowIsTheSameBitsAloneInABatchAndOnEveryInstructionSet) {
  const auto backend = MakeInt8Backend({.threads = 2, .max_rows = 31});
  for (const Shape shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.out << "×" << shape.in);
    const std::vector<float> weights = Random(5, static_cast<size_t>(shape.out) * shape.in, 0.1f);
    const std::vector<float> x = RandomRows(6, 31, shape.in);
    std::vector<float> batch(static_cast<size_t>(31) * shape.out);
    backend->Pack(weights.data(), shape.out, shape.in)->Run(31, x.data(), batch.data());
    const auto expect_alone = [&](DenseBackend& other) {
      const auto layer = other.Pack(weights.data(), shape.out, shape.in);
      std::vector<float> alone(shape.out);
      for (int row = 0; row < 31; ++row) {
        layer->Run(1, x.data() + static_cast<size_t>(row) * shape.in, alone.data());
        ASSERT_TRUE(
            std::equal(alone.begin(), alone.end(), batch.begin() + static_cast<ptrdiff_t>(row) * shape.out))
            << "row " << row;
      }
    };
    expect_alone(*MakeInt8Backend({.threads = 1, .max_rows = 1}));
    ForEachTarget([&] { expect_alone(*MakeSimdInt8Backend({.threads = 1, .max_rows = 1})); });
    for (const Target target : ByteTargets())
      expect_alone(*MakeByteInt8Backend({.threads = 1, .max_rows = 1}, target));
  }
}

void ExpectFloat(DenseBackend& backend, Shape shape, double rounding) {
  SCOPED_TRACE(testing::Message() << backend.name() << " " << shape.out << "×" << shape.in);
  std::vector<float> weights = Random(8, static_cast<size_t>(shape.out) * shape.in, 0.1f);
  const auto layer = backend.Pack(weights.data(), shape.out, shape.in);
  for (float& w : weights) w = ToFloat(ToBFloat16(w));
  const std::vector<float> x = RandomRows(9, 100, shape.in);
  std::vector<double> expected, bound;  // [100, out]
  for (int row = 0; row < 100; ++row) {
    const float* xr = x.data() + static_cast<size_t>(row) * shape.in;
    for (int o = 0; o < shape.out; ++o) {
      const float* w = weights.data() + static_cast<size_t>(o) * shape.in;
      double magnitude = 0;
      for (int i = 0; i < shape.in; ++i) magnitude += std::abs(static_cast<double>(w[i]) * xr[i]);
      expected.push_back(Dot(w, xr, shape.in));
      bound.push_back(magnitude * rounding + 1e-30);
    }
  }
  for (const int rows : {1, 2, 3, 6, 11, 31, 32, 33, 64, 95, 97, 100}) {
    std::vector<float> y(static_cast<size_t>(rows) * shape.out, std::nanf(""));
    layer->Run(rows, x.data(), y.data());
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_LE(std::abs(y[i] - expected[i]), bound[i])
          << rows << " rows, row " << i / shape.out << ", output " << i % shape.out;
    }
  }
}

constexpr double kFloatRounding = 2e-6;

TEST(Float, MatchesDoubleAtEveryThreadCount) {
  for (const int threads : {1, 2, 3}) {
    const auto backend = MakeFloatBackend({.threads = threads, .max_rows = 100});
    // Activations may be rounded to bf16: 2^-8 of each product.
    for (const Shape shape : kShapes) ExpectFloat(*backend, shape, 0x1p-8 + kFloatRounding);
  }
}

TEST(Float, MatchesDoubleOnEveryInstructionSet) {
  ForEachTarget([] {
    const auto backend = MakeSimdFloatBackend({.threads = 2, .max_rows = 100});
    for (const Shape shape : kShapes) ExpectFloat(*backend, shape, kFloatRounding);
  });
}

TEST(Float, OneDnnMatchesDouble) {
  const auto backend = MakeOneDnnFloatBackend({.threads = 2, .max_rows = 100}, /*bf16=*/false);
  for (const Shape shape : kShapes) ExpectFloat(*backend, shape, kFloatRounding);
}

TEST(Float, RowOfOurKernelIsTheSameBitsAloneAndInABatch) {
  for (const Shape shape : kShapes) {
    const std::vector<float> weights = Random(5, static_cast<size_t>(shape.out) * shape.in, 0.1f);
    const std::vector<float> x = RandomRows(6, 100, shape.in);
    const auto backend = MakeSimdFloatBackend({.threads = 2, .max_rows = 100});
    const auto layer = backend->Pack(weights.data(), shape.out, shape.in);
    std::vector<float> batch(static_cast<size_t>(100) * shape.out), alone(shape.out);
    layer->Run(100, x.data(), batch.data());
    for (int row = 0; row < 100; ++row) {
      layer->Run(1, x.data() + static_cast<size_t>(row) * shape.in, alone.data());
      ASSERT_TRUE(
          std::equal(alone.begin(), alone.end(), batch.begin() + static_cast<ptrdiff_t>(row) * shape.out))
          << "row " << row << " of " << shape.out << "×" << shape.in;
    }
  }
}

TEST(Dense, CountsItsMemory) {
  const auto backend = MakeSimdInt8Backend({.threads = 1, .max_rows = 4});
  const std::vector<float> weights(static_cast<size_t>(32) * 64, 1.0f);
  EXPECT_EQ(backend->Pack(weights.data(), 32, 64)->weight_bytes(), 32u * 64 + 32 * 4);
  EXPECT_EQ(backend->scratch_bytes(), 4u * 64 * 2 + 4 * 4);
}

}  // namespace
}  // namespace stria
