// The one rule that turns a range of numbers into codes. Seal and canary share it, on every target, operation
// by operation: each step is one correctly rounded float operation, so that all targets make the same bytes
// (compile with -ffp-contract=off).
#pragma once

#include <cmath>
#include <limits>

#include "base/float16.h"
#include "kernels/format/page_layout.h"

namespace stria {

struct Quantizer {
  Half scale;     // stored
  Half middle;    // stored
  float inverse;  // 1 / scale, or 0 where all numbers are (nearly) equal
  float centre;
  float levels;

  // `finite` is false if any number of the range is infinite or NaN: the range then reads as NaN.
  static Quantizer ForRange(float min, float max, bool finite, int bits) {
    const float levels = static_cast<float>((1 << bits) - 1);
    Quantizer q = {{}, {0x7e00}, 0.0f, CodeCentre(bits), levels};
    if (!finite) return q;
    q.scale = ToHalf((max - min) * (1.0f / levels));
    q.middle = ToHalf((min + max) * 0.5f);
    const float scale = ToFloat(q.scale);
    q.inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    return q;
  }

  int Code(float x) const {
    const float offset = (x - ToFloat(middle)) * inverse;
    const float code = offset + centre;
    const float low = code > 0.0f ? code : 0.0f;  // NaN becomes 0
    return static_cast<int>(std::nearbyintf(low < levels ? low : levels));
  }

  float Value(int code) const {
    const float offset = ToFloat(scale) * (static_cast<float>(code) - centre);
    return ToFloat(middle) + offset;
  }
};

}  // namespace stria
