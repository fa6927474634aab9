#include "kernels/attention/prefill_attention.h"

namespace stria {
namespace {

class PlainPrefillAttention final : public PrefillAttention {
 public:
  PlainPrefillAttention(const AttentionShape& shape, int threads) : shape_(shape), threads_(threads) {}
  void Run(const PrefillAttentionArgs& args) override {
#pragma omp parallel for num_threads(threads_) schedule(dynamic, 8)
    for (int row = args.query_begin; row < args.query_end; ++row) {
      const size_t at = size_t{1} * (row - args.query_begin) * shape_.heads * shape_.head_dim;
      PrefillAttentionReference(shape_, {row, row + 1, args.q + at, args.keys, args.values, args.out + at});
    }
  }

 private:
  AttentionShape shape_;
  int threads_;
};

}  // namespace

std::unique_ptr<PrefillAttention> PrefillAttention::Create(const AttentionShape& shape, Target target, int threads) {
  return std::make_unique<PlainPrefillAttention>(shape, threads);
}

}  // namespace stria
