// Int8 weights on machines that add up byte products without saturating (AVX512-VNNI), for decode rows and prompt rows
// from one packed copy. Why not oneDNN: docs/decisions.md.
#pragma once

#include <memory>

#include "kernels/target.h"
#include "model/dense/dense_layer.h"

namespace stria {

// `target`: kAvx512Vnni, or kPortable, which is slow and gives the same bits.
std::unique_ptr<DenseBackend> MakeByteInt8Backend(const DenseOptions& options, Target target);

}  // namespace stria
