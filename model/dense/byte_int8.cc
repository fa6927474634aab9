#include "model/dense/byte_int8.h"

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <numeric>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "model/dense/byte_kernel.h"
#include "model/dense/huge_page_arena.h"
#include "model/dense/quantize.h"

namespace stria {
namespace {

constexpr int RoundUp(int a, int b) { return (a + b - 1) / b * b; }

// Sums of so many products of 127 · 127 fit 31 bits.
constexpr int kMostInputs = 1 << 17;

struct Kernels {
  decltype(&portable::QuantizeGroups) quantize_groups;
  decltype(&portable::RunByteDigits) run_digits;
  decltype(&portable::RunByteGroups) run_groups;
};

constexpr Kernels KernelsFor(Target target) {
  if (target == Target::kAvx512Vnni)
    return {&avx512vnni::QuantizeGroups, &avx512vnni::RunByteDigits, &avx512vnni::RunByteGroups};
  return {&portable::QuantizeGroups, &portable::RunByteDigits, &portable::RunByteGroups};
}

// A packed matrix. They are kept in the order of packing, which is that of use: at the end of one the next is prefetched.
struct Packed {
  std::span<const uint8_t> weights;
  int panels;

  // The panels of one of `parts` threads.
  int FirstPanel(int64_t part, int64_t parts) const { return static_cast<int>(panels * part / parts); }
};

// Rows as bytes, for the widest input so far.
struct Scratch {
  Scratch(const DenseOptions& options, const Kernels& kernels) : options(options), kernels(kernels) {}

  const DenseOptions options;
  const Kernels kernels;
  AlignedBuffer<int16_t> whole;    // [max_rows, in]
  AlignedBuffer<int8_t> x;         // digits [max_rows, 2, in] or groups [max_prompt_rows, in]
  AlignedBuffer<float> scales;     // [max_rows] or [max_prompt_rows, in / kByteGroup]
  AlignedBuffer<int32_t> offsets;  // [max_rows, 2] or [max_prompt_rows, in / kByteGroup]

  void Reserve(size_t in) {
    const size_t rows = options.max_rows, prompt_rows = options.max_prompt_rows, groups = in / kByteGroup;
    if (x.size() >= std::max(2 * rows, prompt_rows) * in) return;
    whole = AlignedBuffer<int16_t>(rows * in);
    x = AlignedBuffer<int8_t>(std::max(2 * rows, prompt_rows) * in);
    scales = AlignedBuffer<float>(std::max(rows, prompt_rows * groups));
    offsets = AlignedBuffer<int32_t>(std::max(2 * rows, prompt_rows * groups));
  }
  size_t bytes() const { return whole.bytes() + x.bytes() + scales.bytes() + offsets.bytes(); }
};

class ByteInt8Layer final : public DenseLayer {
 public:
  ByteInt8Layer(const float* weights, int out, int in, Scratch* scratch, HugePageArena& arena, std::deque<Packed>& packed)
      : out_(out),
        in_(in),
        padded_in_(RoundUp(in, kByteInputs)),
        panels_(RoundUp(out, kBytePanelOutputs) / kBytePanelOutputs),
        scratch_(scratch),
        weights_(arena.Take<uint8_t>(panels_ * BytePanelBytes(padded_in_))),
        channel_scales_(arena.Take<float>(static_cast<size_t>(panels_) * kBytePanelOutputs)),
        packed_(packed),
        place_(packed.size()) {
    packed.push_back({weights_, panels_});
    STRIA_CHECK(in <= kMostInputs);
#pragma omp parallel for num_threads(scratch->options.threads) schedule(static)
    for (int panel = 0; panel < panels_; ++panel) PackPanel(weights, panel);
  }

  void Run(int rows, const float* x, float* y) override {
    Scratch& s = *scratch_;
    STRIA_CHECK(rows >= 1 && rows <= s.options.max_rows);
    const auto quantize = [&](int row) {
      const size_t at = static_cast<size_t>(row) * padded_in_;
      int8_t* const high = s.x.data() + 2 * at;
      int8_t* const low = high + padded_in_;
      s.scales[row] = QuantizeRow(x + static_cast<size_t>(row) * in_, in_, s.whole.data() + at);
      SplitDigits(s.whole.data() + at, in_, high, low);
      for (int8_t* digits : {high, low}) {
        std::fill(digits + in_, digits + padded_in_, int8_t{0});
        s.offsets[2 * row + (digits == low)] = -128 * std::accumulate(digits, digits + in_, int32_t{0});
      }
    };
    // A few rows are quantised before the team starts: that costs less than the barrier it saves.
    RunPanels(s.kernels.run_digits, rows, y, quantize, /*team=*/rows > 4);
  }

  void RunPrompt(int rows, const float* x, float* y) override {
    Scratch& s = *scratch_;
    STRIA_CHECK(rows >= 1 && rows <= s.options.max_prompt_rows);
    const auto quantize = [&](int row) {
      const size_t at = static_cast<size_t>(row) * padded_in_;
      s.kernels.quantize_groups(x + static_cast<size_t>(row) * in_, in_, padded_in_, s.x.data() + at,
                                s.scales.data() + at / kByteGroup, s.offsets.data() + at / kByteGroup);
    };
    RunPanels(s.kernels.run_groups, rows, y, quantize, /*team=*/true);
  }

  size_t weight_bytes() const override { return weights_.size_bytes() + channel_scales_.size_bytes(); }

 private:
  template <class Quantize>
  void RunPanels(decltype(&portable::RunByteDigits) run, int rows, float* y, const Quantize& quantize, bool team) {
    const Scratch& s = *scratch_;
    if (!team) {
      for (int row = 0; row < rows; ++row) quantize(row);
    }
    ByteArgs args = {.rows = rows,
                           .in = padded_in_,
                           .out = out_,
                           .weights = weights_.data(),
                           .channel_scales = channel_scales_.data(),
                           .x = s.x.data(),
                           .x_scales = s.scales.data(),
                           .offsets = s.offsets.data(),
                           .y = y};
#pragma omp parallel num_threads(s.options.threads) firstprivate(args)
    {
      if (team) {
#pragma omp for schedule(static)
        for (int row = 0; row < rows; ++row) quantize(row);
      }
      const int part = omp_get_thread_num(), parts = omp_get_num_threads();
      const Packed& next = packed_[(place_ + 1) % packed_.size()];
      const size_t next_panel_bytes = next.weights.size() / next.panels;
      args.next = next.weights.data() + next.FirstPanel(part, parts) * next_panel_bytes;
      args.next_bytes = (next.FirstPanel(part + 1, parts) - next.FirstPanel(part, parts)) * next_panel_bytes;
      run(args, packed_[place_].FirstPanel(part, parts), packed_[place_].FirstPanel(part + 1, parts));
    }
  }

  void PackPanel(const float* weights, int panel) {
    std::vector<int8_t> row(padded_in_);
    uint8_t* const to = weights_.data() + panel * BytePanelBytes(padded_in_);
    for (int o = 0; o < kBytePanelOutputs; ++o) {
      const int output = panel * kBytePanelOutputs + o;
      std::fill(row.begin(), row.end(), int8_t{0});
      float& scale = channel_scales_[output];
      scale = output < out_ ? QuantizeChannel(weights + static_cast<int64_t>(output) * in_, in_, row.data()) : 0;
      for (int i = 0; i < padded_in_; ++i)
        to[(i / 4 * kBytePanelOutputs + o) * 4 + i % 4] = static_cast<uint8_t>(row[i] + 128);
    }
  }

  const int out_, in_, padded_in_, panels_;
  Scratch* const scratch_;
  std::span<uint8_t> weights_;
  std::span<float> channel_scales_;
  const std::deque<Packed>& packed_;
  const size_t place_;  // in packed_
};

class ByteInt8Backend final : public DenseBackend {
 public:
  ByteInt8Backend(const DenseOptions& options, Target target)
      : scratch_(options, KernelsFor(target)) {
    STRIA_CHECK(target == Target::kAvx512Vnni || target == Target::kPortable);
  }

  std::unique_ptr<DenseLayer> Pack(const float* weights, int out, int in) override {
    scratch_.Reserve(RoundUp(in, kByteInputs));
    return std::make_unique<ByteInt8Layer>(weights, out, in, &scratch_, arena_, packed_);
  }
  void Prepare(int max_rows) override { STRIA_CHECK(max_rows <= scratch_.options.max_rows); }
  bool runs_prompts() const override { return scratch_.options.max_prompt_rows > 0; }
  size_t scratch_bytes() const override { return scratch_.bytes(); }
  const char* name() const override { return "int8, byte dot products"; }

 private:
  Scratch scratch_;
  HugePageArena arena_;
  std::deque<Packed> packed_;
};

}  // namespace

std::unique_ptr<DenseBackend> MakeByteInt8Backend(const DenseOptions& options, Target target) {
  return std::make_unique<ByteInt8Backend>(options, target);
}

}  // namespace stria
