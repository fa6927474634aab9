#include "controller/worker_registry.h"

#include "gtest/gtest.h"

namespace stria {
namespace {

constexpr MonotonicTime kStart{std::chrono::hours(1)};

TierHello Hello(std::string worker = "w", uint64_t incarnation = 7) {
  return {.worker = std::move(worker), .incarnation = incarnation, .model = "m", .model_name = "M", .layers = 2,
          .http = ""};
}

CanaryFrame Frame(uint64_t number) {
  CanaryFrame frame;
  frame.worker = "w";
  frame.incarnation = 7;
  frame.model = "m";
  frame.number = number;
  return frame;
}

class Registry : public testing::Test {
 protected:
  Registry() { EXPECT_TRUE(registry_.Hello(Hello(), kStart).ok()); }
  FrameVerdict Judge(const CanaryFrame& frame) { return registry_.Judge(frame, kStart); }
  uint64_t gaps() { return registry_.Find("w")->gaps; }
  WorkerRegistry registry_;
};

TEST_F(Registry, CountsGapsFromTheFirstFrameSeen) {
  EXPECT_EQ(Judge(Frame(40)), FrameVerdict::kAccepted);
  EXPECT_EQ(gaps(), 0u);
  EXPECT_EQ(Judge(Frame(41)), FrameVerdict::kAccepted);
  EXPECT_EQ(Judge(Frame(45)), FrameVerdict::kAccepted);
  EXPECT_EQ(gaps(), 3u);
  EXPECT_EQ(registry_.total_gaps(), 3u);
}

TEST_F(Registry, TellsDuplicatesFromLateFrames) {
  for (const uint64_t number : {1, 2, 5}) ASSERT_EQ(Judge(Frame(number)), FrameVerdict::kAccepted);
  EXPECT_EQ(Judge(Frame(5)), FrameVerdict::kDuplicate);
  EXPECT_EQ(Judge(Frame(1)), FrameVerdict::kDuplicate);
  EXPECT_EQ(Judge(Frame(4)), FrameVerdict::kOutOfOrder);
  EXPECT_EQ(Judge(Frame(4)), FrameVerdict::kDuplicate);
  EXPECT_EQ(Judge(Frame(100)), FrameVerdict::kAccepted);
  EXPECT_EQ(Judge(Frame(2)), FrameVerdict::kOutOfOrder) << "beyond the window, refused all the same";
}

TEST_F(Registry, RefusesWhatIsNotThisWorker) {
  CanaryFrame frame = Frame(1);
  frame.worker = "stranger";
  EXPECT_EQ(Judge(frame), FrameVerdict::kUnknownWorker);
  frame = Frame(1);
  frame.incarnation = 8;
  EXPECT_EQ(Judge(frame), FrameVerdict::kOtherIncarnation);
  frame = Frame(1);
  frame.model = "other";
  EXPECT_EQ(Judge(frame), FrameVerdict::kOtherModel);
  frame = Frame(1);
  frame.ranks = 2;
  EXPECT_EQ(Judge(frame), FrameVerdict::kOtherShape);
  EXPECT_EQ(Judge(Frame(0)), FrameVerdict::kBadNumber);
  EXPECT_EQ(Judge(Frame(1)), FrameVerdict::kAccepted) << "nothing above used up the number";
  EXPECT_EQ(Judge(Frame(~uint64_t{0})), FrameVerdict::kBadNumber);
  EXPECT_EQ(Judge(Frame(2)), FrameVerdict::kAccepted);
  EXPECT_EQ(gaps(), 0u);
}

TEST_F(Registry, ARestartStartsNumbersAgain) {
  ASSERT_EQ(Judge(Frame(50)), FrameVerdict::kAccepted);
  ASSERT_TRUE(registry_.Hello(Hello("w", 8), kStart).ok());
  EXPECT_EQ(Judge(Frame(51)), FrameVerdict::kOtherIncarnation);
  CanaryFrame frame = Frame(1);
  frame.incarnation = 8;
  EXPECT_EQ(Judge(frame), FrameVerdict::kAccepted);
  EXPECT_EQ(registry_.Find("w")->restarts, 1u);
}

TEST_F(Registry, RefusesImpossibleHellos) {
  const auto refused = [&](auto change) {
    TierHello hello = Hello("x");
    change(hello);
    return registry_.Hello(hello, kStart).code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused([](TierHello& h) { h.worker.clear(); }));
  EXPECT_TRUE(refused([](TierHello& h) { h.worker.assign(1000, 'x'); }));
  EXPECT_TRUE(refused([](TierHello& h) { h.model.clear(); }));
  EXPECT_TRUE(refused([](TierHello& h) { h.layers = 0; }));
  EXPECT_TRUE(refused([](TierHello& h) { h.layers = 1u << 30; }));
  EXPECT_TRUE(refused([](TierHello& h) { h.ranks = 0; }));
  EXPECT_TRUE(refused([](TierHello& h) { h.rank = 1; }));
  EXPECT_TRUE(refused([](TierHello& h) { h.epoch = ~uint64_t{0}; })) << "there would be no next epoch";
  EXPECT_EQ(registry_.workers().size(), 1u);
}

TEST_F(Registry, BoundsItsMemory) {
  for (int i = 0; i < 10'100; ++i) registry_.Hello(Hello(std::to_string(i)), kStart).IgnoreError();
  EXPECT_EQ(registry_.workers().size(), 10'000u);
  EXPECT_EQ(registry_.Hello(Hello("one more"), kStart).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(registry_.Hello(Hello("w"), kStart + std::chrono::minutes(6)).ok()) << "a known one is always heard";
  EXPECT_EQ(registry_.ForgetSilent(kStart + std::chrono::minutes(6), std::chrono::minutes(5)), 9'999);
  EXPECT_EQ(registry_.workers().size(), 1u);
}

}  // namespace
}  // namespace stria
