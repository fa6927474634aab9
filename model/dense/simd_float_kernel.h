// The inner loops of simd_float.h, one copy per instruction set.
#pragma once

#include "base/float16.h"

namespace stria {

// Weights lie in panels of 16 outputs: panel p, input i, output o at (p · in + i) · 16 + o.
inline constexpr int kFloatPanelOutputs = 16;

struct FloatPanelArgs {
  int rows = 0;
  int in = 0;                         // also the stride of x
  int out = 0;                        // also the stride of y
  const float* x = nullptr;           // [rows, in]
  const BFloat16* weights = nullptr;  // [panels, in, 16]
  float* y = nullptr;                 // [rows, out]
};

// Computes the outputs of panels [begin, end) for all rows: each output is one chain of fused multiply-adds
// from the first input to the last.
void RunFloatPanels(const FloatPanelArgs& args, int begin, int end);

}  // namespace stria
