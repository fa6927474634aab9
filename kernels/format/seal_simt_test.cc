// The case table on the device code, run by the host harness in every order of lanes.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/format/seal.cuh"
#include "kernels/format/seal_cases.h"
#include "kernels/simt/guarded_buffer.h"
#include "kernels/simt/simt.h"

namespace stria {
namespace {

struct Nothing {};

SealPath InOrder(simt::Order order) {
  return {simt::Name(order),
          [=](const AttentionShape& shape, Width width, KvBlock tokens, bool keys, void* page) {
            // A page of its own, whose end faults.
            simt::GuardedBuffer<char> device_page(keys ? KeyPageBytes(shape, width) : ValuePageBytes(shape, width), 64);
            const SealJob job = {tokens, device_page.data(), width, keys};
            EXPECT_EQ(simt::Run<device::SealShared>(
                          {.grid = {.y = shape.kv_heads}, .threads = kSealThreads, .order = order},
                          [&](device::SealShared& shared) { device::SealKernel(shape, &job, shared); }),
                      "");
            std::memcpy(page, device_page.data(), device_page.size());
          },
          [=](const AttentionShape& shape, const float* k, const float* v, int slot, Half* key_block, Half* value_block,
              ptrdiff_t head_stride) {
            const AppendJob job = {k, v, key_block, value_block, head_stride, slot};
            EXPECT_EQ(simt::Run<Nothing>({.grid = {}, .threads = 64, .order = order},
                                         [&](Nothing&) { device::AppendKernel(shape, &job); }),
                      "");
          }};
}

}  // namespace

const std::vector<SealPath>& SealPaths() {
  static const std::vector<SealPath> paths = {InOrder(simt::Order::kForward), InOrder(simt::Order::kReverse),
                                              InOrder(simt::Order::kShuffled)};
  return paths;
}

}  // namespace stria
