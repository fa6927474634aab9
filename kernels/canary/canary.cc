#include "kernels/canary/canary.h"

#include <cmath>

#include "base/check.h"
#include "kernels/canary/canary_kernel.h"

namespace stria {

void CanaryReading(Target target, const AttentionShape& shape, const Half* key_ring, int valid,
                   const float* q, float* out) {
  STRIA_CHECK(valid >= kCanaryMinKeys && valid <= kPageTokens);
  STRIA_CHECK(shape.head_dim % 16 == 0 && shape.head_dim <= kMaxHeadDim);
  const float q_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
  STRIA_DISPATCH(target, CanaryReading)(shape, key_ring, valid, q, q_scale, out);
}

}  // namespace stria
