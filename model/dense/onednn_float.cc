#include "model/dense/onednn_float.h"

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/float16.h"
#include "model/dense/convert.h"
#include "model/dense/dense_layer.h"
#include "model/dense/onednn_matmul.h"

namespace stria {
namespace {

using Type = dnnl::memory::data_type;

// Row counts up to kExact have a primitive each; more rows run as a multiple of kExact and a rest.
constexpr int kExact = 32;

struct Scratch {
  int threads = 1, max_rows = 1;
  AlignedBuffer<BFloat16> x;  // [max_rows, widest input]; empty without bf16 multiplication
};

class OneDnnFloatLayer final : public DenseLayer {
 public:
  OneDnnFloatLayer(const float* weights, bool bf16, OneDnnMatmul* matmul, Scratch* scratch)
      : bf16_(bf16), matmul_(matmul), scratch_(scratch) {
    const int64_t in = matmul->in(), out = matmul->out();
    AlignedBuffer<BFloat16> rounded(in * out);
#pragma omp parallel for num_threads(scratch->threads) schedule(static)
    for (int64_t row = 0; row < out; ++row)
      ConvertToBFloat16(weights + row * in, in, rounded.data() + row * in);
    if (bf16) {
      weights_ = matmul->Pack(rounded.data());
      return;
    }
    AlignedBuffer<float> widened(in * out);
#pragma omp parallel for num_threads(scratch->threads) schedule(static)
    for (int64_t row = 0; row < out; ++row)
      ConvertToFloat(rounded.data() + row * in, in, widened.data() + row * in);
    weights_ = matmul->Pack(widened.data());
  }

  void Run(int rows, const float* x, float* y) override {
    STRIA_CHECK(rows >= 1 && rows <= scratch_->max_rows);
    omp_set_num_threads(scratch_->threads);  // what oneDNN's own regions go by
    const void* source = x;
    const int64_t in = matmul_->in();
    if (bf16_) {
      BFloat16* converted = scratch_->x.data();
#pragma omp parallel for num_threads(scratch_->threads) schedule(static) if (rows > 4)
      for (int64_t row = 0; row < rows; ++row) ConvertToBFloat16(x + row * in, in, converted + row * in);
      source = converted;
    }
    const int head = rows <= kExact ? 0 : rows / kExact * kExact;
    if (head > 0) matmul_->Run(head, source, weights_.data(), y);
    if (rows > head) {
      const int64_t skip = int64_t{head} * in * (bf16_ ? sizeof(BFloat16) : sizeof(float));
      matmul_->Run(rows - head, static_cast<const std::byte*>(source) + skip, weights_.data(),
                   y + int64_t{head} * matmul_->out());
    }
  }

  size_t weight_bytes() const override { return weights_.size_bytes(); }

 private:
  const bool bf16_;
  OneDnnMatmul* const matmul_;
  Scratch* const scratch_;
  std::span<std::byte> weights_;
};

class OneDnnFloatBackend final : public DenseBackend {
 public:
  OneDnnFloatBackend(const DenseOptions& options, bool bf16)
      : bf16_(bf16),
        matmuls_({bf16 ? Type::bf16 : Type::f32, bf16 ? Type::bf16 : Type::f32, Type::f32},
                 options.max_rows) {
    omp_set_num_threads(options.threads);
    scratch_.threads = options.threads;
    scratch_.max_rows = options.max_rows;
  }

  std::unique_ptr<DenseLayer> Pack(const float* weights, int out, int in) override {
    const size_t needed = static_cast<size_t>(scratch_.max_rows) * in;
    if (bf16_ && scratch_.x.size() < needed) scratch_.x = AlignedBuffer<BFloat16>(needed);
    return std::make_unique<OneDnnFloatLayer>(weights, bf16_, matmuls_.Get(out, in), &scratch_);
  }

  void Prepare(int max_rows) override {
    for (int rows = 1; rows <= std::min(max_rows, kExact); ++rows) matmuls_.Prepare(rows);
    for (int rows = kExact; rows <= max_rows; rows += kExact) matmuls_.Prepare(rows);
  }

  size_t scratch_bytes() const override { return scratch_.x.bytes() + matmuls_.scratchpad_bytes(); }
  const char* name() const override {
    return bf16_ ? "bf16 (oneDNN)" : "bf16 weights, f32 products (oneDNN)";
  }

 private:
  const bool bf16_;
  OneDnnMatmuls matmuls_;
  Scratch scratch_;
};

}  // namespace

std::unique_ptr<DenseBackend> MakeOneDnnFloatBackend(const DenseOptions& options, bool bf16) {
  return std::make_unique<OneDnnFloatBackend>(options, bf16);
}

}  // namespace stria
