// bf16 weights, float32 activations and sums, for machines that do not multiply bf16. Half the memory of
// float32 weights, and a row's result is the same bits whatever runs beside it.
#pragma once

#include <memory>

#include "model/dense/dense_layer.h"

namespace stria {

std::unique_ptr<DenseBackend> MakeSimdFloatBackend(const DenseOptions& options);

}  // namespace stria
