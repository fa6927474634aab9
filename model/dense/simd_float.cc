#include "model/dense/simd_float.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/float16.h"
#include "model/dense/huge_page_arena.h"
#include "model/dense/simd_float_kernel.h"

namespace stria {
namespace {

class SimdFloatLayer final : public DenseLayer {
 public:
  SimdFloatLayer(const float* weights, int out, int in, const DenseOptions& options, HugePageArena& arena)
      : out_(out),
        in_(in),
        panels_((out + kFloatPanelOutputs - 1) / kFloatPanelOutputs),
        options_(options),
        weights_(arena.Take<BFloat16>(static_cast<size_t>(panels_) * in * kFloatPanelOutputs)) {
#pragma omp parallel for num_threads(options.threads) schedule(static)
    for (int panel = 0; panel < panels_; ++panel) {
      BFloat16* to = weights_.data() + static_cast<int64_t>(panel) * in * kFloatPanelOutputs;
      const int first = panel * kFloatPanelOutputs, outputs = std::min(kFloatPanelOutputs, out - first);
      for (int i = 0; i < in; ++i, to += kFloatPanelOutputs) {
        for (int o = 0; o < outputs; ++o)
          to[o] = ToBFloat16(weights[static_cast<int64_t>(first + o) * in + i]);
      }
    }
  }

  void Run(int rows, const float* x, float* y) override {
    STRIA_CHECK(rows >= 1 && rows <= options_.max_rows);
    const FloatPanelArgs args = {
        .rows = rows, .in = in_, .out = out_, .x = x, .weights = weights_.data(), .y = y};
    const int parts = options_.threads;
#pragma omp parallel for num_threads(parts) schedule(static)
    for (int part = 0; part < parts; ++part) {
      RunFloatPanels(args, static_cast<int>(int64_t{panels_} * part / parts),
                     static_cast<int>(int64_t{panels_} * (part + 1) / parts));
    }
  }

  size_t weight_bytes() const override { return weights_.size_bytes(); }

 private:
  const int out_, in_, panels_;
  const DenseOptions options_;
  std::span<BFloat16> weights_;  // simd_float_kernel.h
};

class SimdFloatBackend final : public DenseBackend {
 public:
  explicit SimdFloatBackend(const DenseOptions& options) : options_(options) {}

  std::unique_ptr<DenseLayer> Pack(const float* weights, int out, int in) override {
    return std::make_unique<SimdFloatLayer>(weights, out, in, options_, arena_);
  }
  void Prepare(int max_rows) override { STRIA_CHECK(max_rows <= options_.max_rows); }
  size_t scratch_bytes() const override { return 0; }
  const char* name() const override { return "bf16 weights, f32 products"; }

 private:
  const DenseOptions options_;
  HugePageArena arena_;
};

}  // namespace

std::unique_ptr<DenseBackend> MakeSimdFloatBackend(const DenseOptions& options) {
  return std::make_unique<SimdFloatBackend>(options);
}

}  // namespace stria
