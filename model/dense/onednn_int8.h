// int8 × int8 by oneDNN: each row's two digits are two rows of one matmul, so the weights are read once.
#pragma once

#include <memory>

#include "model/dense/dense_layer.h"

namespace stria {

// Exact only where byte dot products do not saturate: AVX512-VNNI, or weights of magnitude ≤ 63.
std::unique_ptr<DenseBackend> MakeOneDnnInt8Backend(const DenseOptions& options);

}  // namespace stria
