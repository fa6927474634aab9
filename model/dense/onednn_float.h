// bf16 weights and activations by oneDNN, f32 sums.
#pragma once

#include <memory>

#include "model/dense/dense_layer.h"

namespace stria {

// bf16 needs AVX512-BF16. Without `bf16` weights are rounded to bf16 and then multiplied as float32, which
// every machine can: the same way through oneDNN, for tests where the other cannot run.
std::unique_ptr<DenseBackend> MakeOneDnnFloatBackend(const DenseOptions& options, bool bf16);

}  // namespace stria
