#include "model/dense/simd_int8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/aligned_buffer.h"
#include "model/dense/huge_page_arena.h"
#include "model/dense/quantize.h"
#include "model/dense/simd_int8_kernel.h"

namespace stria {
namespace {

constexpr int CeilDiv(int a, int b) { return (a + b - 1) / b; }

struct Scratch {
  int threads = 1, max_rows = 1;
  AlignedBuffer<int16_t> x;       // [max_rows, widest input rounded up to pairs]
  std::vector<float> row_scales;  // [max_rows]
};

class SimdInt8Layer final : public DenseLayer {
 public:
  SimdInt8Layer(const float* weights, int out, int in, Scratch* scratch, HugePageArena& arena)
      : out_(out),
        in_(in),
        pairs_(CeilDiv(in, 2)),
        panels_(CeilDiv(out, kPanelOutputs)),
        scratch_(scratch),
        weights_(arena.Take<int8_t>(static_cast<size_t>(panels_) * pairs_ * 2 * kPanelOutputs)),
        channel_scales_(static_cast<size_t>(panels_) * kPanelOutputs) {
#pragma omp parallel for num_threads(scratch->threads) schedule(static)
    for (int panel = 0; panel < panels_; ++panel) PackPanel(weights, panel);
  }

  void Run(int rows, const float* x, float* y) override {
    Scratch& s = *scratch_;
    STRIA_CHECK(rows >= 1 && rows <= s.max_rows);
    const PanelArgs args = {.rows = rows,
                            .pairs = pairs_,
                            .out = out_,
                            .x = s.x.data(),
                            .row_scales = s.row_scales.data(),
                            .weights = weights_.data(),
                            .channel_scales = channel_scales_.data(),
                            .y = y};
    // A few rows are quantised before the team starts: that costs less than the barrier it saves.
    const bool few = rows <= 4;
    if (few) {
      for (int row = 0; row < rows; ++row) QuantizeInto(x, row);
    }
#pragma omp parallel num_threads(s.threads)
    {
      if (!few) {
#pragma omp for schedule(static)
        for (int row = 0; row < rows; ++row) QuantizeInto(x, row);
      }
#pragma omp for schedule(static) nowait
      for (int part = 0; part < s.threads; ++part) {
        RunPanels(args, static_cast<int>(int64_t{panels_} * part / s.threads),
                  static_cast<int>(int64_t{panels_} * (part + 1) / s.threads));
      }
    }
  }

  size_t weight_bytes() const override {
    return weights_.size_bytes() + channel_scales_.size() * sizeof(float);
  }

 private:
  void PackPanel(const float* weights, int panel) {
    const int first = panel * kPanelOutputs, outputs = std::min(kPanelOutputs, out_ - first);
    const size_t stride = 2 * static_cast<size_t>(pairs_);
    std::vector<int8_t> rows(kPanelOutputs * stride);  // zero where the panel is padded
    for (int o = 0; o < outputs; ++o) {
      channel_scales_[first + o] =
          QuantizeChannel(weights + static_cast<int64_t>(first + o) * in_, in_, rows.data() + o * stride);
    }
    int8_t* to = weights_.data() + panel * kPanelOutputs * stride;
    for (size_t pair = 0; pair < stride; pair += 2) {
      for (int o = 0; o < kPanelOutputs; ++o, to += 2) std::memcpy(to, rows.data() + o * stride + pair, 2);
    }
  }

  void QuantizeInto(const float* x, int row) {
    int16_t* q = scratch_->x.data() + static_cast<size_t>(row) * 2 * pairs_;
    scratch_->row_scales[row] = QuantizeRow(x + static_cast<size_t>(row) * in_, in_, q);
    if (in_ % 2 != 0) q[in_] = 0;
  }

  const int out_, in_, pairs_, panels_;
  Scratch* const scratch_;
  std::span<int8_t> weights_;  // simd_int8_kernel.h
  std::vector<float> channel_scales_;
};

class SimdInt8Backend final : public DenseBackend {
 public:
  explicit SimdInt8Backend(const DenseOptions& options) {
    scratch_.threads = options.threads;
    scratch_.max_rows = options.max_rows;
    scratch_.row_scales.resize(options.max_rows);
  }

  std::unique_ptr<DenseLayer> Pack(const float* weights, int out, int in) override {
    const size_t needed = static_cast<size_t>(scratch_.max_rows) * 2 * CeilDiv(in, 2);
    if (scratch_.x.size() < needed) scratch_.x = AlignedBuffer<int16_t>(needed);
    return std::make_unique<SimdInt8Layer>(weights, out, in, &scratch_, arena_);
  }

  void Prepare(int max_rows) override { STRIA_CHECK(max_rows <= scratch_.max_rows); }
  size_t scratch_bytes() const override { return scratch_.x.bytes() + scratch_.row_scales.size() * 4; }
  const char* name() const override { return "int8, 16-bit products"; }

 private:
  Scratch scratch_;
  HugePageArena arena_;
};

}  // namespace

std::unique_ptr<DenseBackend> MakeSimdInt8Backend(const DenseOptions& options) {
  return std::make_unique<SimdInt8Backend>(options);
}

}  // namespace stria
