// The rule of quantizer.h in device code, step by step the same correctly rounded operations (compile with -fmad=false):
// pages sealed on a GPU have the reference's bytes, and seal_simt_test.cc holds the two together.
#pragma once

#include <limits>

#include "kernels/device/device.cuh"
#include "kernels/format/page_layout.h"

namespace stria::device {

// Least and largest of a range, and whether all of it is finite.
struct Range {
  float min = std::numeric_limits<float>::infinity(), max = -std::numeric_limits<float>::infinity();
  bool finite = true;
  STRIA_DEVICE void Add(float x) {
    min = Min(min, x);
    max = Max(max, x);
    finite = finite && IsFinite(x);
  }
};

struct RangeQuantizer {
  Half scale, middle;
  float scale_value, middle_value, inverse;

  STRIA_DEVICE RangeQuantizer(const Range& range, int bits) : scale{0}, middle{0x7e00} {
    if (range.finite) {
      scale = HalfOf((range.max - range.min) * (1.0f / static_cast<float>((1 << bits) - 1)));
      middle = HalfOf((range.min + range.max) * 0.5f);
    }
    scale_value = FloatOf(scale);
    middle_value = FloatOf(middle);
    inverse = scale_value > 0.0f ? 1.0f / scale_value : 0.0f;
  }
};

STRIA_DEVICE int CodeOf(float x, float middle, float inverse, int bits) {
  const float levels = static_cast<float>((1 << bits) - 1), offset = (x - middle) * inverse, code = offset + levels / 2;
  return RoundToInt(Min(Max(code, 0.0f), levels));  // NaN becomes 0
}

}  // namespace stria::device
