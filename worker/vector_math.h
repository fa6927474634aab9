// Sweeps over one row of logits, vectorised.
#pragma once

#include <cstddef>

namespace stria {

inline constexpr size_t kMathBlock = 128;

// Largest value, NaN ignored; −inf if there is none.
float MaxOf(const float* values, size_t count);

// Σ exp((value − best) · scale), NaN as 0; relative error below 1e-6. `best` is finite and no value is
// larger, scale > 0. block_sums, when given, gets the sum of each kMathBlock values, [(count + kMathBlock −
// 1) / kMathBlock].
double SumExp(const float* values, size_t count, float best, float scale, double* block_sums = nullptr);

// The same exponential, one value, bit for bit what SumExp adds up.
float ExpOf(float value, float best, float scale);

}  // namespace stria
