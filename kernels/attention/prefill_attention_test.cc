// The case table on every instruction set that this machine has; and the bfloat16 kernel, emulated where it can't run.
#include "kernels/attention/prefill_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention/prefill_attention_cases.h"
#include "kernels/attention/prefill_kernel.h"
#include "kernels/attention/prefill_test_data.h"

namespace stria {
namespace {

using namespace prefill_test;  // NOLINT: test data

bool UsesBf16(Target target) { return target == Target::kAvx512Vnni && __builtin_cpu_supports("avx512bf16"); }

// bfloat16 keeps 8 bits of q, k, p and v, each with a relative error of at most 2^-9, mostly averaged out.
constexpr double kBf16Bound = 6e-3;

PrefillFunction OnThreads(Target target, int threads) {
  return [=](const AttentionShape& shape, const PrefillAttentionArgs& args) {
    PrefillAttention::Create(shape, target, threads)->Run(args);
  };
}

// The whole prompt through the bfloat16 kernel as this machine or the emulation computes it.
std::vector<float> RunBf16(const Prompt& prompt, void (*kernel)(const PrefillBlockArgs&)) {
  const AttentionShape& shape = prompt.shape;
  const int tokens = prompt.tokens;
  std::vector<float> out(prompt.q.size(), std::numeric_limits<float>::quiet_NaN());
  std::vector<float> scratch(PrefillScratchFloats(shape.head_dim) + 16);
  const int block_rows = kPrefillRows / shape.group();
  for (int first = 0; first < tokens; first += block_rows) {
    for (int h = 0; h < shape.kv_heads; ++h) {
      const PrefillAttentionArgs args = prompt.Args(first, tokens, out.data());
      PrefillBlockArgs block;
      block.head_dim = shape.head_dim;
      block.group = shape.group();
      block.rows = std::min(block_rows, tokens - first);
      block.first_position = first;
      block.q_scale =
          static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(shape.head_dim)));
      block.row_stride = shape.heads * shape.head_dim;
      block.q = args.q + h * shape.group() * shape.head_dim;
      block.out = args.out + h * shape.group() * shape.head_dim;
      block.keys = args.keys.data + h * args.keys.head_stride;
      block.values = args.values.data + h * args.values.head_stride;
      block.scratch =
          scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64 / sizeof(float);
      kernel(block);
    }
  }
  return out;
}

}  // namespace

const std::vector<PrefillPath>& PrefillPaths() {
  static const std::vector<PrefillPath> paths = [] {
    std::vector<PrefillPath> all;
    for (Target target : AvailableTargets())
      all.push_back({Name(target), UsesBf16(target) ? kBf16Bound : 3e-6, OnThreads(target, 1), {OnThreads(target, 2)}});
    return all;
  }();
  return paths;
}

namespace {

TEST(PrefillBf16Test, EmulatedKernelStaysWithinItsBound) {
  for (const AttentionShape& shape : kShapes) {
    for (int tokens : {1, 65, 200}) {
      const Prompt prompt(shape, tokens, 2);
      EXPECT_LT(RelativeError(RunBf16(prompt, &portable::PrefillBlockBf16), prompt.Reference()), kBf16Bound)
          << "head_dim " << shape.head_dim << " group " << shape.group() << " tokens " << tokens;
    }
  }
}

// Without taking off what keys have in common, a bias of 200 would leave bfloat16 steps as large as the keys
// themselves.
TEST(PrefillBf16Test, KeysWithALargeCommonBiasLoseNothing) {
  const Prompt prompt({6, 2, 64}, 150, 200);
  EXPECT_LT(RelativeError(RunBf16(prompt, &portable::PrefillBlockBf16), prompt.Reference()), 2 * kBf16Bound);
}

}  // namespace
}  // namespace stria
