#include <cmath>

#include "base/clock.h"
#include "base/float16.h"
#include "base/random.h"
#include "gtest/gtest.h"

namespace stria {
namespace {

TEST(Float16, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const Half half{static_cast<uint16_t>(bits)};
    const float value = ToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToHalf(value))));
    } else {
      EXPECT_EQ(ToHalf(value).bits, bits);
      EXPECT_EQ(value, static_cast<float>(std::bit_cast<_Float16>(half.bits)));
    }
  }
}

TEST(Float16, RoundsLikeTheCompiler) {
  for (uint32_t i = 0; i < 2'000'000; ++i) {
    const float value = std::bit_cast<float>(i * 2147u);  // walks over all exponents
    if (std::isnan(value)) continue;
    EXPECT_EQ(ToHalf(value).bits, std::bit_cast<uint16_t>(static_cast<_Float16>(value))) << value;
  }
}

TEST(Float16, BFloat16RoundsToNearestEven) {
  EXPECT_EQ(ToBFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(ToBFloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // tie to even
  EXPECT_EQ(ToBFloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_TRUE(std::isnan(ToFloat(ToBFloat16(NAN))));
}

// The published known-answer vectors of Random123 for philox4x32-10.
TEST(Random, PhiloxKnownAnswers) {
  EXPECT_EQ(Philox(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~0ull, ~0ull, ~0ull), (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, UniformStaysInRangeAndAverages) {
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const double u = Uniform(7, 3, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(Clock, WallClockJumpLeavesMonotonicTime) {
  FakeClock clock;
  const auto before = clock.Now();
  clock.JumpWallClock(-3600);
  EXPECT_EQ(clock.Now(), before);
}

}  // namespace
}  // namespace stria
