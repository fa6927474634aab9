#include "kernels/format/seal.h"

#include "base/check.h"
#include "kernels/format/seal_kernel.h"
#include "kernels/format/stage_kernel.h"

namespace stria {

void SealKeys(Target target, const AttentionShape& shape, Width width, KvBlock tokens, void* page) {
  STRIA_CHECK(shape.head_dim % 16 == 0 && shape.head_dim <= kMaxHeadDim);
  STRIA_DISPATCH(target, SealKeys)(shape, width, tokens, page);
}

void SealValues(Target target, const AttentionShape& shape, Width width, KvBlock tokens, void* page) {
  STRIA_CHECK(shape.head_dim % 16 == 0 && shape.head_dim <= kMaxHeadDim);
  STRIA_DISPATCH(target, SealValues)(shape, width, tokens, page);
}

void StageKeys(Target target, const AttentionShape& shape, PageRef page, Half* block, ptrdiff_t head_stride) {
  STRIA_DISPATCH(target, StageKeys)(shape, page, block, head_stride);
}

void StageValues(Target target, const AttentionShape& shape, PageRef page, Half* block,
                 ptrdiff_t head_stride) {
  STRIA_DISPATCH(target, StageValues)(shape, page, block, head_stride);
}

void AppendToken(Target target, const AttentionShape& shape, const float* k, const float* v, int slot,
                 Half* key_block, Half* value_block, ptrdiff_t head_stride) {
  const int dim = shape.head_dim;
  const auto store = STRIA_DISPATCH(target, StoreHalves);
  for (int h = 0; h < shape.kv_heads; ++h) {
    store(k + h * dim, dim, key_block + h * head_stride + slot * dim);
    store(v + h * dim, dim, value_block + h * head_stride + slot * dim);
  }
}

}  // namespace stria
