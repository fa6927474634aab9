// The integer matmul for machines without byte dot products: int8 weights widened on load, 16-bit
// activations, and the pairwise multiply-add that every x86-64 since SSE2 has.
#pragma once

#include <memory>

#include "model/dense/dense_layer.h"

namespace stria {

std::unique_ptr<DenseBackend> MakeSimdInt8Backend(const DenseOptions& options);

}  // namespace stria
