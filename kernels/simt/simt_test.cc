// The harness catches what it says it catches: each known-bad kernel beside the good one it was made from.
#include "kernels/simt/simt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/device/device.cuh"
#include "kernels/simt/guarded_buffer.h"

namespace stria {
namespace {

using device::kAllLanes;
using simt::GuardedBuffer;
using simt::kAllOrders;
using simt::Order;
using testing::HasSubstr;

constexpr int kThreads = 64;

struct Numbers {
  float of[kThreads];
};

enum class Fault { kNone, kMissingBarrier, kDivergentBarrier, kEarlyReturn };

// out[i] = in[n - 1 - i], through shared memory.
void Reverse(const float* in, float* out, Fault fault, Numbers& shared) {
  const int i = device::Thread(), n = device::Threads();
  if (fault == Fault::kEarlyReturn && i == 37) return;
  shared.of[i] = in[i];
  if (fault == Fault::kDivergentBarrier && i % 2 == 1) {
    device::SyncBlock();
  } else if (fault != Fault::kMissingBarrier) {
    device::SyncBlock();
  }
  out[i] = shared.of[n - 1 - i];
}

std::string RunReverse(Fault fault, Order order, bool* right) {
  GuardedBuffer<float> in(kThreads), out(kThreads);
  std::iota(in.data(), in.data() + kThreads, 1.0f);
  const std::string error = simt::Run<Numbers>({.grid = {}, .threads = kThreads, .order = order}, [&](Numbers& shared) {
    Reverse(in.data(), out.data(), fault, shared);
  });
  *right = true;
  for (int i = 0; i < kThreads; ++i) *right &= out[i] == static_cast<float>(kThreads - i);
  return error;
}

TEST(SimtTest, GoodKernelIsRightInEveryOrder) {
  for (Order order : kAllOrders) {
    bool right;
    EXPECT_EQ(RunReverse(Fault::kNone, order, &right), "");
    EXPECT_TRUE(right);
  }
}

TEST(SimtTest, MissingBarrierReadsNanInEveryOrder) {
  for (Order order : kAllOrders) {
    bool right;
    EXPECT_EQ(RunReverse(Fault::kMissingBarrier, order, &right), "");
    EXPECT_FALSE(right);
  }
}

TEST(SimtTest, DivergentBarrierIsReportedWithBothLines) {
  for (Order order : kAllOrders) {
    bool right;
    EXPECT_THAT(RunReverse(Fault::kDivergentBarrier, order, &right),
                testing::ContainsRegex("simt_test.cc:[0-9]+: thread [0-9]+: barrier meets a barrier of thread [0-9]+ at simt_test.cc:[0-9]+"));
  }
}

TEST(SimtTest, EarlyReturnBeforeABarrierIsReported) {
  for (Order order : kAllOrders) {
    bool right;
    EXPECT_THAT(RunReverse(Fault::kEarlyReturn, order, &right), HasSubstr("barrier waits for thread 37, which has returned"));
  }
}

struct Nothing {};

template <class Body>
std::string RunWarp(const Body& body, Order order = Order::kForward) {
  return simt::Run<Nothing>({.grid = {}, .threads = 32, .order = order}, [&](Nothing&) { body(device::Thread()); });
}

TEST(SimtTest, ShufflesFollowMaskAndWidth) {
  for (Order order : kAllOrders) {
    std::vector<int> xored(32), segment(32), half(32);
    EXPECT_EQ(RunWarp(
                  [&](int lane) {
                    xored[lane] = device::ShuffleXor(kAllLanes, lane, 5);
                    segment[lane] = device::Shuffle(kAllLanes, lane, 3, 8);
                    half[lane] = lane < 16 ? device::ShuffleXor(0x0000ffffu, lane, 1) : device::Shuffle(0xffff0000u, 100 + lane, 16);
                  },
                  order),
              "");
    for (int lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(xored[lane], lane ^ 5);
      EXPECT_EQ(segment[lane], lane / 8 * 8 + 3);
      EXPECT_EQ(half[lane], lane < 16 ? lane ^ 1 : 116);
    }
  }
}

TEST(SimtTest, BallotAndAtomics) {
  for (Order order : kAllOrders) {
    GuardedBuffer<int> count(1);
    std::vector<uint32_t> votes(32);
    EXPECT_EQ(RunWarp(
                  [&](int lane) {
                    votes[lane] = device::Ballot(kAllLanes, lane % 3 == 0);
                    device::AtomicAdd(count.data(), lane);
                  },
                  order),
              "");
    EXPECT_EQ(count[0], 31 * 32 / 2);
    for (uint32_t vote : votes) EXPECT_EQ(vote, 0x49249249u);
  }
}

TEST(SimtTest, MaskWithoutTheCallerIsReported) {
  EXPECT_THAT(RunWarp([](int lane) { device::ShuffleXor(lane == 9 ? 0xffu : kAllLanes, lane, 1); }, Order::kReverse),
              HasSubstr("thread 9: shuffle with a mask that lacks the caller"));
}

TEST(SimtTest, ReadFromALaneOutsideTheMaskIsReported) {
  EXPECT_THAT(RunWarp([](int lane) {
                if (lane < 16) device::Shuffle(0xffffu, lane, 20);
              }),
              HasSubstr("reads lane 20, which is not in the mask"));
}

TEST(SimtTest, ShuffleWithALaneThatReturnedIsReported) {
  for (Order order : kAllOrders) {
    EXPECT_THAT(RunWarp(
                    [](int lane) {
                      if (lane == 4) return;
                      device::ShuffleXor(kAllLanes, lane, 1);
                    },
                    order),
                HasSubstr("shuffle waits for thread 4, which has returned"));
  }
}

TEST(SimtTest, LanesInDifferentCollectivesAreReported) {
  for (Order order : kAllOrders) {
    EXPECT_THAT(RunWarp(
                    [](int lane) {
                      if (lane < 16) {
                        device::ShuffleXor(kAllLanes, lane, 1);
                      } else {
                        device::SyncBlock();
                      }
                    },
                    order),
                HasSubstr(" meets a "));
  }
}

struct alignas(16) Tile {
  float of[32 * 4];
};

// Each lane fetches four floats and sums its own; `wait` says whether it waits for them first.
std::vector<float> SumsOfCopies(bool wait, Order order, std::string* error) {
  GuardedBuffer<float> in(32 * 4);
  std::iota(in.data(), in.data() + in.size(), 0.0f);
  std::vector<float> sums(32);
  *error = simt::Run<Tile>({.grid = {}, .threads = 32, .order = order}, [&](Tile& tile) {
    const int lane = device::Thread();
    float* mine = tile.of + lane * 4;
    device::CopyAsync16(mine, in.data() + lane * 4);
    device::CommitCopies();
    if (wait) device::WaitCopies<0>();
    sums[lane] = mine[0] + mine[1] + mine[2] + mine[3];
    device::WaitCopies<0>();
  });
  return sums;
}

TEST(SimtTest, CopiesLandOnlyWhenTheyAreWaitedFor) {
  for (Order order : kAllOrders) {
    std::string error;
    const std::vector<float> good = SumsOfCopies(true, order, &error);
    EXPECT_EQ(error, "");
    for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(good[lane], 16.0f * lane + 6);
    for (float sum : SumsOfCopies(false, order, &error)) EXPECT_TRUE(std::isnan(sum));
  }
}

TEST(SimtTest, CopiesInFlightAtTheEndAreReported) {
  GuardedBuffer<float> in(4);
  EXPECT_THAT(simt::Run<Tile>({}, [&](Tile& tile) {
                if (device::Thread() == 0) device::CopyAsync16(tile.of, in.data());
              }),
              HasSubstr("copies in flight"));
}

TEST(SimtTest, MisalignedLoadIsReported) {
  GuardedBuffer<char> in(64);
  EXPECT_THAT(RunWarp([&](int) { device::Load<device::Words4>(in.data() + 8); }), HasSubstr("not aligned to 16 bytes"));
}

TEST(SimtTest, BlocksOfAGridRunOnceEach) {
  for (Order order : kAllOrders) {
    std::vector<int> runs(2 * 3 * 4);
    EXPECT_EQ(simt::Run<Nothing>({.grid = {2, 3, 4}, .threads = 32, .order = order},
                                 [&](Nothing&) {
                                   if (device::Thread() == 0) {
                                     ++runs[(device::BlockZ() * 3 + device::BlockY()) * 2 + device::BlockX()];
                                   }
                                 }),
              "");
    EXPECT_EQ(runs, std::vector<int>(24, 1));
  }
}

TEST(SimtTest, TensorCoreProductEqualsPlainLoops) {
  uint8_t a[16][32], b[32][8];
  for (int i = 0; i < 16 * 32; ++i) a[i / 32][i % 32] = static_cast<uint8_t>(i * 37 + 11);
  for (int i = 0; i < 32 * 8; ++i) b[i / 8][i % 8] = static_cast<uint8_t>(i * 91 + 5);
  const auto word = [](auto byte) { return byte(0) | byte(1) << 8 | byte(2) << 16 | uint32_t{byte(3)} << 24; };
  for (Order order : kAllOrders) {
    int32_t got_signed[16][8], got[16][8];
    EXPECT_EQ(RunWarp(
                  [&](int lane) {
                    const int row = lane / 4, j = lane % 4;
                    uint32_t left[4], right[2];
                    for (int i = 0; i < 4; ++i)
                      left[i] = word([&](int k) { return uint32_t{a[row + i % 2 * 8][i / 2 * 16 + 4 * j + k]}; });
                    for (int i = 0; i < 2; ++i)
                      right[i] = word([&](int k) { return uint32_t{b[i * 16 + 4 * j + k][row]}; });
                    int32_t x[4] = {1, 2, 3, 4}, y[4] = {};
                    device::MultiplyBytes<true>(x, left, right);
                    device::MultiplyBytes<false>(y, left, right);
                    for (int s = 0; s < 4; ++s) {
                      got_signed[row + s / 2 * 8][2 * j + s % 2] = x[s] - s - 1;
                      got[row + s / 2 * 8][2 * j + s % 2] = y[s];
                    }
                  },
                  order),
              "");
    for (int i = 0; i < 16; ++i) {
      for (int n = 0; n < 8; ++n) {
        int32_t expected_signed = 0, expected = 0;
        for (int k = 0; k < 32; ++k) {
          expected_signed += a[i][k] * static_cast<int8_t>(b[k][n]);
          expected += a[i][k] * b[k][n];
        }
        EXPECT_EQ(got_signed[i][n], expected_signed);
        EXPECT_EQ(got[i][n], expected);
      }
    }
  }
}

using SimtDeathTest = testing::Test;

TEST(SimtDeathTest, ReadPastABufferFaults) {
  GuardedBuffer<float> in(32);
  float sum = 0;
  EXPECT_DEATH(RunWarp([&](int lane) { sum += in.data()[lane + 4]; }), "");
}

TEST(SimtDeathTest, WritePastSharedMemoryFaults) {
  EXPECT_DEATH(simt::Run<Numbers>({.grid = {}, .threads = 64, .order = Order::kForward},
                                  [&](Numbers& shared) { const_cast<volatile float*>(shared.of)[device::Thread() + 4] = 1; }),
               "");
}

}  // namespace
}  // namespace stria
