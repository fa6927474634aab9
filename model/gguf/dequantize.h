// Block-quantised rows to float32, for every supported GgmlType.
#pragma once

#include <cstdint>

#include "model/gguf/ggml_type.h"

namespace stria {

// Writes `count` elements to out [count] from the whole blocks at `blocks` (any alignment), which hold
// count / LayoutOf(type).elements blocks. `count` is a multiple of the block's elements. Pure, thread-safe.
// The arithmetic is float32 in the order of the format's reference: ((scale · sub-scale) · code) - (min ·
// sub-min). Block layouts: ggml's ggml-common.h.
void Dequantize(GgmlType type, const uint8_t* blocks, int64_t count, float* out);

}  // namespace stria
