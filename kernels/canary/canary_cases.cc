// The case table of the canary: the reference's reading, whoever takes it.
#include "kernels/canary/canary_cases.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/canary/canary_test_data.h"

namespace stria {
namespace {

using canary_test::Ring;

const AttentionShape kShapes[] = {{1, 1, 16}, {9, 3, 64}, {4, 1, 80}, {7, 1, 128}, {16, 1, 48}, {2, 2, 256}};

class CanaryTest : public testing::TestWithParam<CanaryPath> {};

TEST_P(CanaryTest, EqualsReferenceForEveryShapeAndCount) {
  for (const AttentionShape& shape : kShapes) {
    for (int valid : {16, 17, 63, 64}) {
      const Ring ring(shape, valid);
      double expected[kCanaryWidths];
      float got[kCanaryWidths];
      CanaryReadingReference(shape, ring.keys.data(), valid, ring.q.data(), expected);
      GetParam().read(shape, ring.keys.data(), valid, ring.q.data(), got);
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
  GetParam().read(shape, ring.keys.data(), 64, ring.q.data(), got);
  for (float reading : got) EXPECT_NEAR(reading, 0, 1e-6);
}

TEST_P(CanaryTest, BadKeysReadNan) {
  const AttentionShape shape = {2, 1, 64};
  for (uint16_t bits : {0x7c00, 0xfc00, 0x7e00}) {
    Ring ring(shape, 64);
    ring.keys[77] = Half{bits};
    float got[kCanaryWidths];
    GetParam().read(shape, ring.keys.data(), 64, ring.q.data(), got);
    for (float reading : got) EXPECT_TRUE(std::isnan(reading));
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, CanaryTest, testing::ValuesIn(CanaryPaths()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stria
