// The case table on the device code, run by the host harness in every order of lanes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/evict/snapkv.cuh"
#include "kernels/evict/snapkv_cases.h"
#include "kernels/simt/guarded_buffer.h"
#include "kernels/simt/simt.h"

namespace stria {
namespace {

AddVotes InOrder(simt::Order order) {
  return [=](const AttentionShape& shape, const ObservationArgs& args, float* scores) {
    const int rows = args.query_end - args.query_begin;
    simt::GuardedBuffer<ObservationNormaliser> normalisers(std::vector<ObservationNormaliser>(
        rows * shape.heads, {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::quiet_NaN()}));
    const ObservationParams params = {.shape = shape,
                                      .q_scale = static_cast<float>(1.4426950408889634 / std::sqrt(double(shape.head_dim))),
                                      .query_begin = args.query_begin,
                                      .query_end = args.query_end,
                                      .q = args.q,
                                      .keys = args.keys,
                                      .scored = args.scored,
                                      .normalisers = normalisers.data(),
                                      .scores = scores};
    EXPECT_EQ(simt::Run<device::ObservationShared>(
                  {.grid = {rows, params.Tiles(), shape.kv_heads}, .threads = kObservationThreads, .order = order},
                  [&](device::ObservationShared& shared) { device::ObservationNormalisersKernel(params, shared); }),
              "");
    const int blocks = (args.scored + kObservationThreads - 1) / kObservationThreads;
    EXPECT_EQ(simt::Run<device::ObservationShared>(
                  {.grid = {blocks, shape.kv_heads}, .threads = kObservationThreads, .order = order},
                  [&](device::ObservationShared& shared) { device::ObservationVotesKernel(params, shared); }),
              "");
  };
}

}  // namespace

const std::vector<SnapKvPath>& SnapKvPaths() {
  static const std::vector<SnapKvPath> paths = {
      {"forward", InOrder(simt::Order::kForward), {InOrder(simt::Order::kReverse)}},
      {"reverse", InOrder(simt::Order::kReverse), {InOrder(simt::Order::kShuffled)}},
      {"shuffled", InOrder(simt::Order::kShuffled), {InOrder(simt::Order::kForward)}},
  };
  return paths;
}

}  // namespace stria
