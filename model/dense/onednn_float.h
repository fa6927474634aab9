// bf16 or float32 weights by oneDNN.
#pragma once

#include <memory>

#include "model/dense/dense_layer.h"

namespace stria {

// bf16: bf16 activations and weights, else float32 activations and bf16-rounded float32 weights. f32 sums
// both.
std::unique_ptr<DenseBackend> MakeOneDnnFloatBackend(const DenseOptions& options, bool bf16);

}  // namespace stria
