#include "kernels/attention/prefill_attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/check.h"
#include "kernels/attention/prefill_kernel.h"

namespace stria {
namespace {

using Kernel = void (*)(const PrefillBlockArgs&);

Kernel KernelFor(Target target) {
  if (target == Target::kAvx512Vnni && __builtin_cpu_supports("avx512bf16"))
    return &avx512bf16::PrefillBlockBf16;
  return STRIA_DISPATCH(target, PrefillBlock);
}

class BlockedPrefillAttention final : public PrefillAttention {
 public:
  BlockedPrefillAttention(const AttentionShape& shape, Target target, int threads)
      : shape_(shape), kernel_(KernelFor(target)), threads_(threads) {
    STRIA_CHECK(shape.head_dim % 16 == 0 && shape.head_dim <= kMaxHeadDim);
    STRIA_CHECK(shape.heads % shape.kv_heads == 0 && shape.group() <= kPrefillRows);
    const size_t bytes = (PrefillScratchFloats(shape.head_dim) * sizeof(float) + 63) / 64 * 64;
    for (int i = 0; i < threads; ++i) {
      scratch_.emplace_back(static_cast<float*>(std::aligned_alloc(64, bytes)), &std::free);
      STRIA_CHECK(scratch_.back() != nullptr);
    }
  }

  void Run(const PrefillAttentionArgs& args) override {
    const int group = shape_.group(), dim = shape_.head_dim;
    const int block_rows = kPrefillRows / group;
    const int rows = args.query_end - args.query_begin;
    const int blocks = (rows + block_rows - 1) / block_rows;
    // Later rows see more keys: the longest blocks go first.
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 1)
    for (int unit = blocks * shape_.kv_heads - 1; unit >= 0; --unit) {
      const int head = unit % shape_.kv_heads, first = unit / shape_.kv_heads * block_rows;
      PrefillBlockArgs block;
      block.head_dim = dim;
      block.group = group;
      block.rows = std::min(block_rows, rows - first);
      block.first_position = args.query_begin + first;
      block.q_scale = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(dim)));
      block.row_stride = ptrdiff_t{1} * shape_.heads * dim;
      const ptrdiff_t at = first * block.row_stride + ptrdiff_t{1} * head * group * dim;
      block.q = args.q + at;
      block.out = args.out + at;
      block.keys = args.keys.data + head * args.keys.head_stride;
      block.values = args.values.data + head * args.values.head_stride;
      block.scratch = scratch_[omp_get_thread_num()].get();
      kernel_(block);
    }
  }

 private:
  const AttentionShape shape_;
  const Kernel kernel_;
  const int threads_;
  std::vector<std::unique_ptr<float, decltype(&std::free)>> scratch_;
};

}  // namespace

std::unique_ptr<PrefillAttention> PrefillAttention::Create(const AttentionShape& shape, Target target,
                                                           int threads) {
  return std::make_unique<BlockedPrefillAttention>(shape, target, threads);
}

}  // namespace stria
