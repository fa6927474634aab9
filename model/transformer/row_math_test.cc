#include "model/transformer/row_math.h"

#include <cmath>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"
#include "model/dense/targets_for_test.h"

namespace stria {
namespace {

constexpr int kSizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 33, 64, 576, 1537};

std::vector<float> Random(uint64_t stream, int n, float magnitude) {
  std::vector<float> values(n);
  for (int i = 0; i < n; ++i) values[i] = magnitude * static_cast<float>(2 * Uniform(3, stream, i) - 1);
  return values;
}

TEST(RowMath, RmsNorm) {
  ForEachTarget([] {
    for (const int n : kSizes) {
      std::vector<float> x = Random(1, n, 7);
      const std::vector<float> weight = Random(2, n, 2);
      double squares = 0;
      for (const float v : x) squares += static_cast<double>(v) * v;
      const double inverse = 1 / std::sqrt(squares / n + 1e-5);
      std::vector<float> out(n);
      RmsNorm(x.data(), weight.data(), 1e-5f, n, out.data());
      for (int i = 0; i < n; ++i) ASSERT_NEAR(out[i], x[i] * inverse * weight[i], 5e-6) << n << " " << i;
      RmsNorm(x.data(), weight.data(), 1e-5f, n, x.data());  // in place
      ASSERT_EQ(x, out);
    }
  });
}

TEST(RowMath, RmsNormOfZerosIsZero) {
  std::vector<float> x(20, 0.0f), weight(20, 3.0f);
  RmsNorm(x.data(), weight.data(), 1e-6f, 20, x.data());
  EXPECT_EQ(x, std::vector<float>(20, 0.0f));
}

TEST(RowMath, RotateTurnsHalvesAgainstEachOther) {
  ForEachTarget([] {
    for (const int pairs : {1, 3, 8, 32, 64}) {
      for (const int rest : {0, 5}) {
        const int n = 2 * pairs + rest;
        std::vector<float> x = Random(4, n, 3), cosines(pairs), sines(pairs), out(n);
        for (int i = 0; i < pairs; ++i) cosines[i] = std::cos(0.3f * i), sines[i] = std::sin(0.3f * i);
        Rotate(x.data(), cosines.data(), sines.data(), pairs, n, out.data());
        for (int i = 0; i < pairs; ++i) {
          const double angle = 0.3 * i;
          ASSERT_NEAR(out[i], x[i] * std::cos(angle) - x[i + pairs] * std::sin(angle), 2e-5);
          ASSERT_NEAR(out[i + pairs], x[i + pairs] * std::cos(angle) + x[i] * std::sin(angle), 2e-5);
        }
        for (int i = 2 * pairs; i < n; ++i) ASSERT_EQ(out[i], x[i]);
        Rotate(x.data(), cosines.data(), sines.data(), pairs, n, x.data());  // in place
        ASSERT_EQ(x, out);
      }
    }
  });
}

TEST(RowMath, SwiGlu) {
  ForEachTarget([] {
    for (const int n : kSizes) {
      std::vector<float> gate = Random(5, n, 20), up = Random(6, n, 4), out(n);
      gate[n / 2] = -200;  // e^200 is beyond float: silu is 0, not NaN
      SwiGlu(gate.data(), up.data(), n, out.data());
      for (int i = 0; i < n; ++i) {
        const double g = gate[i];
        ASSERT_NEAR(out[i], g / (1 + std::exp(-g)) * up[i], 2e-5) << n << " " << i;
      }
    }
  });
}

TEST(RowMath, AddInto) {
  ForEachTarget([] {
    for (const int n : kSizes) {
      const std::vector<float> x = Random(7, n, 1);
      std::vector<float> sum = Random(8, n, 1);
      const std::vector<float> before = sum;
      AddInto(x.data(), n, sum.data());
      for (int i = 0; i < n; ++i) ASSERT_EQ(sum[i], before[i] + x[i]);
    }
  });
}

}  // namespace
}  // namespace stria
