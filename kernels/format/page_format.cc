#include "kernels/format/page_format.h"

#include "kernels/format/page_layout.h"

namespace stria {

size_t KeyPageBytes(const AttentionShape& shape, Width width) {
  return shape.kv_heads * KeySliceBytes(shape.head_dim, width);
}

size_t ValuePageBytes(const AttentionShape& shape, Width width) {
  return shape.kv_heads * ValueSliceBytes(shape.head_dim, width);
}

}  // namespace stria
