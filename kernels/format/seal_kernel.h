// Sealing and appending, once per target. Contracts: kernels/format/seal.h.
#pragma once

#include "kernels/format/page_format.h"
#include "kernels/simd/simd.h"

namespace stria {

STRIA_DECLARE_TARGETS(void, SealKeys, (const AttentionShape& shape, Width width, KvBlock tokens, void* page))
STRIA_DECLARE_TARGETS(void, SealValues,
                      (const AttentionShape& shape, Width width, KvBlock tokens, void* page))
STRIA_DECLARE_TARGETS(void, StoreHalves, (const float* from, int count, Half* to))  // count a multiple of 16

}  // namespace stria
