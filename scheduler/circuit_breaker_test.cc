#include "scheduler/circuit_breaker.h"

#include <gtest/gtest.h>

namespace stria {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using State = CircuitBreaker::State;

constexpr MonotonicTime kStart{std::chrono::hours(1)};

TEST(CircuitBreaker, OpensAtTheThirdLossInQuickSuccession) {
  CircuitBreaker breaker;
  MonotonicTime now = kStart;
  breaker.OnLost(now);
  breaker.OnLost(now += seconds(5));
  EXPECT_EQ(breaker.state(now), State::kClosed);
  EXPECT_FALSE(breaker.clean(now));
  breaker.OnLost(now += seconds(5));
  EXPECT_EQ(breaker.state(now), State::kOpen);
  EXPECT_EQ(breaker.remaining(now), seconds(2));
  EXPECT_EQ(breaker.state(now + seconds(2)), State::kTrial);
}

TEST(CircuitBreaker, LossesFarApartFade) {
  CircuitBreaker breaker;
  MonotonicTime now = kStart;
  for (int i = 0; i < 20; ++i) breaker.OnLost(now += minutes(2));
  EXPECT_EQ(breaker.state(now), State::kClosed);
  EXPECT_TRUE(breaker.clean(now + minutes(10)));
}

TEST(CircuitBreaker, ErrorsCountInARow) {
  CircuitBreaker breaker;
  for (int i = 0; i < 20; ++i) {
    breaker.OnError(kStart);
    if (i % 4 == 3) breaker.OnSuccess(kStart);
  }
  EXPECT_EQ(breaker.state(kStart), State::kClosed);
  for (int i = 0; i < 5; ++i) breaker.OnError(kStart);
  EXPECT_EQ(breaker.state(kStart), State::kOpen);
}

TEST(CircuitBreaker, TheEndOfATrialDecidesAndTheWaitGrows) {
  CircuitBreaker breaker;
  MonotonicTime now = kStart;
  for (int i = 0; i < 3; ++i) breaker.OnLost(now);
  breaker.OnSuccess(now);
  EXPECT_EQ(breaker.state(now), State::kOpen) << "what had been running is no trial";
  Duration waited = seconds(2);
  for (int trip = 2; trip <= 12; ++trip) {
    now += waited;
    ASSERT_EQ(breaker.state(now), State::kTrial);
    if (trip % 2 == 0) {
      breaker.OnLost(now);
    } else {
      breaker.OnError(now);
    }
    waited = std::min<Duration>(2 * waited, minutes(5));
    EXPECT_EQ(breaker.remaining(now), waited) << trip;
    EXPECT_EQ(breaker.trips(), static_cast<uint32_t>(trip));
  }
  now += waited;
  breaker.OnSuccess(now);
  EXPECT_EQ(breaker.state(now), State::kClosed);
  for (int i = 0; i < 3; ++i) breaker.OnLost(now);
  EXPECT_EQ(breaker.remaining(now), minutes(5)) << "not forgotten yet";
  now += minutes(5);
  breaker.OnSuccess(now);
  now += minutes(15);
  EXPECT_TRUE(breaker.clean(now));
  for (int i = 0; i < 3; ++i) breaker.OnLost(now);
  EXPECT_EQ(breaker.remaining(now), seconds(2)) << "forgiven";
}

}  // namespace
}  // namespace stria
