#include "kernels/canary/canary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/format/seal.h"

namespace stria {
namespace {

float Normal(uint64_t seed, uint64_t i) {
  return static_cast<float>(std::sqrt(-2 * std::log(Uniform(seed, 0, i) + 1e-12)) *
                            std::cos(2 * M_PI * Uniform(seed, 1, i)));
}

struct Ring {
  AttentionShape shape;
  std::vector<Half> keys;  // slots past `valid` are NaN
  std::vector<float> q;

  Ring(const AttentionShape& shape, int valid)
      : shape(shape), keys(shape.kv_heads * kPageTokens * shape.head_dim, Half{0xffff}) {
    for (int h = 0; h < shape.kv_heads; ++h) {
      for (int i = 0; i < valid * shape.head_dim; ++i) {
        keys[h * kPageTokens * shape.head_dim + i] =
            ToHalf(Normal(h, i) + 2 * Normal(50 + h, i % shape.head_dim));
      }
    }
    for (int i = 0; i < shape.heads * shape.head_dim; ++i) q.push_back(2 * Normal(99, i));
  }
};

const AttentionShape kShapes[] = {{1, 1, 16}, {9, 3, 64}, {4, 1, 80}, {7, 1, 128}, {16, 1, 48}, {2, 2, 256}};

class CanaryTest : public testing::TestWithParam<Target> {};

TEST_P(CanaryTest, EqualsReferenceForEveryShapeAndCount) {
  for (const AttentionShape& shape : kShapes) {
    for (int valid : {16, 17, 63, 64}) {
      const Ring ring(shape, valid);
      double expected[kCanaryWidths];
      float got[kCanaryWidths];
      CanaryReadingReference(shape, ring.keys.data(), valid, ring.q.data(), expected);
      CanaryReading(GetParam(), shape, ring.keys.data(), valid, ring.q.data(), got);
      for (int w = 0; w < kCanaryWidths; ++w) {
        EXPECT_NEAR(got[w], expected[w], 2e-3 * expected[w] + 1e-7)
            << "width " << (2 << w) << " head_dim " << shape.head_dim << " valid " << valid;
      }
      // Step squared: each width is an order of magnitude or more below the one before.
      EXPECT_GT(expected[0], 5 * expected[1]);
      EXPECT_GT(expected[1], 20 * expected[2]);
      EXPECT_GT(expected[2], 0);
    }
  }
}

TEST_P(CanaryTest, KeysThatQuantiseExactlyReadZero) {
  const AttentionShape shape = {2, 1, 64};
  Ring ring(shape, 64);
  for (int i = 0; i < 64 * 64; ++i)
    ring.keys[i] = ToHalf(static_cast<float>(3 * ((i / 64 + i % 5) % 2)));  // 0 and 3 only
  float got[kCanaryWidths];
  CanaryReading(GetParam(), shape, ring.keys.data(), 64, ring.q.data(), got);
  for (float reading : got) EXPECT_NEAR(reading, 0, 1e-6);
}

TEST_P(CanaryTest, BadKeysReadNan) {
  const AttentionShape shape = {2, 1, 64};
  for (uint16_t bits : {0x7c00, 0xfc00, 0x7e00}) {
    Ring ring(shape, 64);
    ring.keys[77] = Half{bits};
    float got[kCanaryWidths];
    CanaryReading(GetParam(), shape, ring.keys.data(), 64, ring.q.data(), got);
    for (float reading : got) EXPECT_TRUE(std::isnan(reading));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, CanaryTest,
                         testing::ValuesIn(AvailableTargets().begin(), AvailableTargets().end()),
                         [](const auto& info) { return std::string(Name(info.param)); });

// The reading is about what a seal would do: the same number comes out of pages that were really sealed.
TEST(CanaryReferenceTest, MeasuresWhatSealingDoes) {
  const AttentionShape shape = {6, 2, 64};
  const Ring ring(shape, 64);
  double reading[kCanaryWidths];
  CanaryReadingReference(shape, ring.keys.data(), 64, ring.q.data(), reading);
  const auto log_softmax = [&](const std::vector<float>& keys, int head) {
    std::vector<double> x(64);
    double sum = 0;
    for (int t = 0; t < 64; ++t) {
      for (int c = 0; c < 64; ++c)
        x[t] += double{ring.q[head * 64 + c]} * keys[(head / 3 * 64 + t) * 64 + c] / 8;
      sum += std::exp(x[t]);
    }
    for (double& v : x) v -= std::log(sum);
    return x;
  };
  std::vector<float> exact(2 * 64 * 64), sealed(exact.size());
  for (size_t i = 0; i < exact.size(); ++i) exact[i] = ToFloat(ring.keys[i]);
  for (int w = 0; w < kCanaryWidths; ++w) {
    const Width width = static_cast<Width>(2 << w);
    const std::unique_ptr<void, decltype(&std::free)> page(std::aligned_alloc(64, KeyPageBytes(shape, width)),
                                                           &std::free);
    SealKeys(BestTarget(), shape, width, {ring.keys.data(), 64 * 64}, page.get());
    UnsealKeys(shape, {page.get(), width}, sealed.data());
    double kl = 0;
    for (int head = 0; head < 6; ++head) {
      const auto p = log_softmax(exact, head), q = log_softmax(sealed, head);
      for (int t = 0; t < 64; ++t) kl += std::exp(p[t]) * (p[t] - q[t]) / 6;
    }
    EXPECT_NEAR(reading[w], kl, 1e-9 + 1e-6 * kl) << Name(width);
  }
}

}  // namespace
}  // namespace stria
