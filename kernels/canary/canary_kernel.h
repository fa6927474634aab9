// The canary's reading, once per target. Contract: kernels/canary/canary.h.
#pragma once

#include "kernels/format/page_format.h"
#include "kernels/simd/simd.h"

namespace stria {

STRIA_DECLARE_TARGETS(void, CanaryReading,
                      (const AttentionShape& shape, const Half* key_ring, int valid, const float* q,
                       float q_scale, float* out))

}  // namespace stria
