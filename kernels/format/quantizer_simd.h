// kernels/format/quantizer.h in vectors: the same float operations in the same order, so the same bits on
// every target (compile with -ffp-contract=off).
#pragma once

#include "kernels/format/page_layout.h"
#include "kernels/simd/simd.h"

namespace stria::STRIA_SIMD {

// Smallest and largest number of each lane's range. `bad` is zero while all were finite, then NaN.
struct RangeVector {
  F min = Set(__builtin_inff());
  F max = Set(-__builtin_inff());
  F bad = Set(0.0f);

  void Include(F x) {
    min = Min(x, min);
    max = Max(x, max);
    bad = bad + (x - x);
  }
};

// Ranges of 16 neighbouring channels, each over `tokens` tokens of `dim` numbers. Several at once: the sums that wait
// for one another are of different channels.
inline void ChannelRanges(const Half* x, int tokens, int dim, RangeVector (&ranges)[kRowVectors]) {
  for (int t = 0; t < tokens; ++t) {
    for (int v = 0; v < kRowVectors; ++v) ranges[v].Include(LoadHalf(x + t * dim + v * kLanes));
  }
}

struct QuantizerVector {
  F scale, middle, inverse;  // scale and middle as stored, in FP16

  // Stores scale and middle at the given places, one per lane.
  static QuantizerVector Make(F min, F max, F bad, int bits, Half* scale_to, Half* middle_to) {
    const F zero = Set(0.0f), nan = Set(__builtin_nanf(""));
    const F levels = Set(1.0f / static_cast<float>((1 << bits) - 1));
    StoreHalf(scale_to, SelectEqual(bad, zero, (max - min) * levels, zero));
    StoreHalf(middle_to, SelectEqual(bad, zero, (min + max) * Set(0.5f), nan));
    QuantizerVector q;
    q.scale = LoadHalf(scale_to);
    q.middle = LoadHalf(middle_to);
    q.inverse = SelectEqual(q.scale, zero, zero, Set(1.0f) / q.scale);
    return q;
  }
};

template <int bits>
I CodeOf(F x, F middle, F inverse) {
  constexpr float kLevels = static_cast<float>((1 << bits) - 1);
  const F code = (x - middle) * inverse + Set(kLevels / 2);
  return Round(Min(Max(code, Set(0.0f)), Set(kLevels)));
}

}  // namespace stria::STRIA_SIMD
