// The case table on the device code, run by the host harness in every order of lanes.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/attention/prefill_attention.cuh"
#include "kernels/attention/prefill_attention_cases.h"
#include "kernels/simt/simt.h"

namespace stria {
namespace {

template <int kMaxDim>
std::string RunKernel(const PrefillParams& params, simt::Order order) {
  return simt::Run<device::PrefillShared<kMaxDim>>(
      {.grid = {params.Blocks(), params.shape.kv_heads}, .threads = kPrefillThreads, .order = order},
      [&](auto& shared) { device::PrefillAttentionKernel<kMaxDim>(params, shared); });
}

PrefillFunction InOrder(simt::Order order) {
  return [=](const AttentionShape& shape, const PrefillAttentionArgs& args) {
    const PrefillParams params = {.shape = shape,
                                  .q_scale = static_cast<float>(1.4426950408889634 / std::sqrt(double(shape.head_dim))),
                                  .query_begin = args.query_begin,
                                  .query_end = args.query_end,
                                  .q = args.q,
                                  .keys = args.keys,
                                  .values = args.values,
                                  .out = args.out};
    EXPECT_EQ(shape.head_dim <= 64    ? RunKernel<64>(params, order)
              : shape.head_dim <= 128 ? RunKernel<128>(params, order)
                                      : RunKernel<256>(params, order),
              "");
  };
}

}  // namespace

const std::vector<PrefillPath>& PrefillPaths() {
  static const std::vector<PrefillPath> paths = {
      {"forward", 3e-6, InOrder(simt::Order::kForward), {InOrder(simt::Order::kReverse)}},
      {"reverse", 3e-6, InOrder(simt::Order::kReverse), {InOrder(simt::Order::kShuffled)}},
      {"shuffled", 3e-6, InOrder(simt::Order::kShuffled), {InOrder(simt::Order::kForward)}},
  };
  return paths;
}

}  // namespace stria
