// The inner loops of simd_int8.h, one copy per instruction set.
#pragma once

#include <cstdint>

namespace stria {

// Weights lie in panels of 16 outputs: panel p, pair of inputs j, output o, input i at byte ((p · pairs + j)
// · 16 + o) · 2 + i.
inline constexpr int kPanelOutputs = 16;

struct PanelArgs {
  int rows = 0;
  int pairs = 0;                          // inputs / 2, rounded up; padding is zero on both sides
  int out = 0;                            // outputs, also the stride of y
  const int16_t* x = nullptr;             // [rows, 2 · pairs]
  const float* row_scales = nullptr;      // [rows]
  const int8_t* weights = nullptr;        // [panels, pairs, 16, 2]
  const float* channel_scales = nullptr;  // [panels · 16]
  float* y = nullptr;                     // [rows, out]
};

// Computes the outputs of panels [begin, end) for all rows.
void RunPanels(const PanelArgs& args, int begin, int end);

}  // namespace stria
