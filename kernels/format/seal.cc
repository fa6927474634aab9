#include "kernels/format/seal.h"

#include "kernels/format/seal_reference.h"

namespace stria {

void SealKeys(Target target, const AttentionShape& shape, Width width, KvBlock tokens, void* page) {
  SealKeysReference(shape, width, tokens, page);
}

void SealValues(Target target, const AttentionShape& shape, Width width, KvBlock tokens, void* page) {
  SealValuesReference(shape, width, tokens, page);
}

void AppendToken(Target target, const AttentionShape& shape, const float* k, const float* v, int slot, Half* key_block,
                 Half* value_block, ptrdiff_t head_stride) {
  const int dim = shape.head_dim;
  for (int h = 0; h < shape.kv_heads; ++h) {
    for (int c = 0; c < dim; ++c) {
      key_block[h * head_stride + slot * dim + c] = ToHalf(k[h * dim + c]);
      value_block[h * head_stride + slot * dim + c] = ToHalf(v[h * dim + c]);
    }
  }
}

}  // namespace stria
