#include "model/dense/onednn_int8.h"

#include <omp.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "model/dense/onednn_matmul.h"
#include "model/dense/quantize.h"

namespace stria {
namespace {

using Type = dnnl::memory::data_type;

// Below so many outputs a team costs more than it saves.
constexpr int kSerialOutputs = 16384;

struct Scratch {
  int threads = 1, max_rows = 1;
  AlignedBuffer<int16_t> quantized;  // [max_rows, widest input]
  AlignedBuffer<int8_t> digits;      // [2 · max_rows, widest input]: hi and lo of row 0, of row 1, …
  AlignedBuffer<int32_t> sums;       // [2 · max_rows, widest output]
  std::vector<float> row_scales;     // [max_rows]

  size_t bytes() const {
    return quantized.bytes() + digits.bytes() + sums.bytes() + row_scales.size() * sizeof(float);
  }
};

class OneDnnInt8Layer final : public DenseLayer {
 public:
  OneDnnInt8Layer(const float* weights, OneDnnMatmul* matmul, Scratch* scratch)
      : matmul_(matmul), scratch_(scratch), channel_scales_(matmul->out()) {
    const int64_t in = matmul->in(), out = matmul->out();
    AlignedBuffer<int8_t> quantized(in * out);
#pragma omp parallel for num_threads(scratch->threads) schedule(static)
    for (int64_t row = 0; row < out; ++row) {
      channel_scales_[row] = QuantizeChannel(weights + row * in, in, quantized.data() + row * in);
    }
    weights_ = matmul->Pack(quantized.data());
  }

  void Run(int rows, const float* x, float* y) override {
    Scratch& s = *scratch_;
    STRIA_CHECK(rows >= 1 && rows <= s.max_rows);
    omp_set_num_threads(s.threads);  // what oneDNN's own regions go by
    const int64_t in = matmul_->in(), out = matmul_->out();
    const bool serial = rows <= 4;
#pragma omp parallel for num_threads(s.threads) schedule(static) if (!serial)
    for (int64_t row = 0; row < rows; ++row) {
      int16_t* q = s.quantized.data() + row * in;
      s.row_scales[row] = QuantizeRow(x + row * in, in, q);
      SplitDigits(q, in, s.digits.data() + 2 * row * in, s.digits.data() + (2 * row + 1) * in);
    }
    matmul_->Run(2 * rows, s.digits.data(), weights_.data(), s.sums.data());
    // One row of a wide head is worth sharing out too, so the pieces are cut along the outputs.
    const int64_t pieces = rows * out <= kSerialOutputs ? 1 : s.threads;
#pragma omp parallel for num_threads(s.threads) schedule(static) if (pieces > 1)
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t begin = out * piece / pieces, end = out * (piece + 1) / pieces;
      for (int64_t row = 0; row < rows; ++row) {
        JoinDigits(s.sums.data() + 2 * row * out + begin, s.sums.data() + (2 * row + 1) * out + begin,
                   s.row_scales[row], channel_scales_.data() + begin, end - begin, y + row * out + begin);
      }
    }
  }

  size_t weight_bytes() const override { return weights_.size_bytes() + channel_scales_.size() * sizeof(float); }

 private:
  OneDnnMatmul* const matmul_;
  Scratch* const scratch_;
  std::span<std::byte> weights_;
  std::vector<float> channel_scales_;
};

class OneDnnInt8Backend final : public DenseBackend {
 public:
  explicit OneDnnInt8Backend(const DenseOptions& options) : matmuls_({Type::s8, Type::s8, Type::s32}, 2) {
    omp_set_num_threads(options.threads);
    scratch_.threads = options.threads;
    scratch_.max_rows = options.max_rows;
    scratch_.row_scales.resize(options.max_rows);
  }

  std::unique_ptr<DenseLayer> Pack(const float* weights, int out, int in) override {
    const size_t rows = scratch_.max_rows;
    if (scratch_.quantized.size() < rows * in) {
      scratch_.quantized = AlignedBuffer<int16_t>(rows * in);
      scratch_.digits = AlignedBuffer<int8_t>(2 * rows * in);
    }
    if (scratch_.sums.size() < 2 * rows * out) scratch_.sums = AlignedBuffer<int32_t>(2 * rows * out);
    return std::make_unique<OneDnnInt8Layer>(weights, matmuls_.Get(out, in), &scratch_);
  }

  void Prepare(int max_rows) override {
    for (int rows = 1; rows <= max_rows; ++rows) matmuls_.Prepare(2 * rows);
  }

  size_t scratch_bytes() const override { return scratch_.bytes() + matmuls_.scratchpad_bytes(); }
  const char* name() const override { return "int8, byte dot products (oneDNN)"; }

 private:
  OneDnnMatmuls matmuls_;
  Scratch scratch_;
};

}  // namespace

std::unique_ptr<DenseBackend> MakeOneDnnInt8Backend(const DenseOptions& options) {
  return std::make_unique<OneDnnInt8Backend>(options);
}

}  // namespace stria
