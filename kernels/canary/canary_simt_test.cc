// The case table on the device code, run by the host harness in every order of lanes.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/canary/canary.cuh"
#include "kernels/canary/canary_cases.h"
#include "kernels/simt/guarded_buffer.h"
#include "kernels/simt/simt.h"

namespace stria {
namespace {

CanaryPath InOrder(simt::Order order) {
  return {simt::Name(order), [=](const AttentionShape& shape, const Half* key_ring, int valid, const float* q, float* out) {
            const float q_scale = static_cast<float>(1 / std::sqrt(double(shape.head_dim)));
            simt::GuardedBuffer<Half> ring(
                std::vector<Half>(key_ring, key_ring + shape.kv_heads * kPageTokens * shape.head_dim));
            const CanaryJob job = {ring.data(), valid, q, out};
            EXPECT_EQ(simt::Run<device::CanaryShared>(
                          {.grid = {}, .threads = kCanaryThreads, .order = order},
                          [&](device::CanaryShared& shared) { device::CanaryKernel(shape, q_scale, &job, shared); }),
                      "");
          }};
}

}  // namespace

const std::vector<CanaryPath>& CanaryPaths() {
  static const std::vector<CanaryPath> paths = {InOrder(simt::Order::kForward), InOrder(simt::Order::kReverse),
                                                InOrder(simt::Order::kShuffled)};
  return paths;
}

}  // namespace stria
