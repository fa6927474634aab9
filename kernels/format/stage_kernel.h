// Reading sealed pages back as FP16 tokens, once per target. Contracts: kernels/format/seal.h.
#pragma once

#include "kernels/format/page_format.h"
#include "kernels/simd/simd.h"

namespace stria {

STRIA_DECLARE_TARGETS(void, StageKeys,
                      (const AttentionShape& shape, PageRef page, Half* block, ptrdiff_t head_stride))
STRIA_DECLARE_TARGETS(void, StageValues,
                      (const AttentionShape& shape, PageRef page, Half* block, ptrdiff_t head_stride))

}  // namespace stria
