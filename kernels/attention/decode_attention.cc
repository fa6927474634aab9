#include "kernels/attention/decode_attention.h"

#include "base/check.h"

namespace stria {
namespace {

class PlainDecodeAttention final : public DecodeAttention {
 public:
  explicit PlainDecodeAttention(const AttentionShape& shape, int threads) : shape_(shape), threads_(threads) {}
  void Plan(std::span<const int> tokens) override { sequences_ = static_cast<int>(tokens.size()); }
  void Run(const SequenceKv* kv, const float* q, float* out, const SequenceKv* next) override {
#pragma omp parallel for num_threads(threads_)
    for (int i = 0; i < sequences_; ++i) {
      const size_t at = size_t{1} * i * shape_.heads * shape_.head_dim;
      DecodeAttentionReference(shape_, kv[i], q + at, out + at);
    }
  }

 private:
  AttentionShape shape_;
  int threads_;
  int sequences_ = 0;
};

}  // namespace

std::unique_ptr<DecodeAttention> DecodeAttention::Create(const AttentionShape& shape, Target target, int threads) {
  return std::make_unique<PlainDecodeAttention>(shape, threads);
}

}  // namespace stria
