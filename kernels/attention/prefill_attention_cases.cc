#include "kernels/attention/prefill_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/attention/prefill_kernel.h"

namespace stria {
namespace {

float Normal(uint64_t seed, uint64_t i) {
  return static_cast<float>(std::sqrt(-2 * std::log(Uniform(seed, 0, i) + 1e-12)) *
                            std::cos(2 * M_PI * Uniform(seed, 1, i)));
}

// A staged prompt. Behind its `tokens` tokens the staging holds NaN, as unwritten memory may.
struct Prompt {
  AttentionShape shape;
  int tokens;
  int capacity;
  std::vector<Half> keys, values;
  std::vector<float> q;

  Prompt(const AttentionShape& shape, int tokens, float key_bias)
      : shape(shape),
        tokens(tokens),
        capacity(tokens + 70),
        keys(size_t{1} * shape.kv_heads * capacity * shape.head_dim, Half{0xffff}),
        values(keys.size(), Half{0xffff}),
        q(size_t{1} * tokens * shape.heads * shape.head_dim) {
    const int dim = shape.head_dim;
    for (int h = 0; h < shape.kv_heads; ++h) {
      for (int i = 0; i < tokens * dim; ++i) {
        const float bias = i % dim % 16 == 3 ? key_bias : 0;
        keys[h * capacity * dim + i] = ToHalf(Normal(1 + h, i) + bias);
        values[h * capacity * dim + i] = ToHalf(Normal(100 + h, i));
      }
    }
    for (size_t i = 0; i < q.size(); ++i) q[i] = 1.5f * Normal(1000, i);
  }

  PrefillAttentionArgs Args(int begin, int end, float* out) const {
    const ptrdiff_t stride = ptrdiff_t{1} * capacity * shape.head_dim;
    const size_t at = size_t{1} * begin * shape.heads * shape.head_dim;
    return {begin, end, q.data() + at, {keys.data(), stride}, {values.data(), stride}, out + at};
  }

  std::vector<float> Reference() const {
    std::vector<float> out(q.size());
    PrefillAttentionReference(shape, Args(0, tokens, out.data()));
    return out;
  }

  std::vector<float> Run(PrefillAttention& attention, int chunk) const {
    std::vector<float> out(q.size(), std::numeric_limits<float>::quiet_NaN());
    for (int begin = 0; begin < tokens; begin += chunk)
      attention.Run(Args(begin, std::min(tokens, begin + chunk), out.data()));
    return out;
  }

  // The whole prompt through the bfloat16 kernel as this machine or the emulation computes it.
  std::vector<float> RunBf16(void (*kernel)(const PrefillBlockArgs&)) const {
    std::vector<float> out(q.size(), std::numeric_limits<float>::quiet_NaN());
    std::vector<float> scratch(PrefillScratchFloats(shape.head_dim) + 16);
    const int block_rows = kPrefillRows / shape.group();
    for (int first = 0; first < tokens; first += block_rows) {
      for (int h = 0; h < shape.kv_heads; ++h) {
        const PrefillAttentionArgs args = Args(first, tokens, out.data());
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
        block.keys = keys.data() + h * args.keys.head_stride;
        block.values = values.data() + h * args.values.head_stride;
        block.scratch =
            scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64 / sizeof(float);
        kernel(block);
      }
    }
    return out;
  }
};

double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

const AttentionShape kShapes[] = {{1, 1, 16}, {6, 2, 64}, {4, 1, 80}, {7, 1, 128}, {16, 1, 48}, {2, 2, 256}};

bool UsesBf16(Target target) { return target == Target::kAvx512Vnni && __builtin_cpu_supports("avx512bf16"); }

// bfloat16 keeps 8 bits of q, k, p and v, each with a relative error of at most 2^-9, mostly averaged out.
constexpr double kBf16Bound = 6e-3;
double Bound(Target target) { return UsesBf16(target) ? kBf16Bound : 3e-6; }

class PrefillAttentionTest : public testing::TestWithParam<Target> {};

TEST_P(PrefillAttentionTest, EqualsReferenceForEveryShapeAndLength) {
  for (const AttentionShape& shape : kShapes) {
    for (int tokens : {1, 2, 8, 9, 17, 64, 65, 127, 128, 129, 200}) {
      const Prompt prompt(shape, tokens, 2);
      const auto attention = PrefillAttention::Create(shape, GetParam(), 1);
      EXPECT_LT(RelativeError(prompt.Run(*attention, tokens), prompt.Reference()), Bound(GetParam()))
          << "head_dim " << shape.head_dim << " group " << shape.group() << " tokens " << tokens;
    }
  }
}

TEST_P(PrefillAttentionTest, ChunksAndThreadsChangeNothingButRounding) {
  const Prompt prompt({6, 2, 64}, 333, 2);
  const std::vector<float> whole = prompt.Run(*PrefillAttention::Create(prompt.shape, GetParam(), 1), 333);
  for (int chunk : {1, 7, 64, 100}) {
    for (int threads : {1, 2}) {
      const auto attention = PrefillAttention::Create(prompt.shape, GetParam(), threads);
      EXPECT_LT(RelativeError(prompt.Run(*attention, chunk), whole), Bound(GetParam())) << "chunk " << chunk;
    }
  }
  EXPECT_EQ(prompt.Run(*PrefillAttention::Create(prompt.shape, GetParam(), 2), 333), whole);
}

INSTANTIATE_TEST_SUITE_P(Targets, PrefillAttentionTest,
                         testing::ValuesIn(AvailableTargets().begin(), AvailableTargets().end()),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(PrefillBf16Test, EmulatedKernelStaysWithinItsBound) {
  for (const AttentionShape& shape : kShapes) {
    for (int tokens : {1, 65, 200}) {
      const Prompt prompt(shape, tokens, 2);
      EXPECT_LT(RelativeError(prompt.RunBf16(&portable::PrefillBlockBf16), prompt.Reference()), kBf16Bound)
          << "head_dim " << shape.head_dim << " group " << shape.group() << " tokens " << tokens;
    }
  }
}

// Without taking off what keys have in common, a bias of 200 would leave bfloat16 steps as large as the keys
// themselves.
TEST(PrefillBf16Test, KeysWithALargeCommonBiasLoseNothing) {
  const Prompt prompt({6, 2, 64}, 150, 200);
  EXPECT_LT(RelativeError(prompt.RunBf16(&portable::PrefillBlockBf16), prompt.Reference()), 2 * kBf16Bound);
}

}  // namespace
}  // namespace stria
