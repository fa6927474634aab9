// Symmetric integer quantisation of weights (per output channel) and of activations (per row).
#pragma once

#include <cstdint>

namespace stria {

// An activation is q · scale with |q| ≤ kActivationMax: 16 bits, which byte kernels see as two int8 digits, q
// = 256·hi + lo. One digit alone costs ten times the error of int8 weights; the second brings it down to
// theirs.
inline constexpr int kActivationMax = 127 * 256;

// q[i] = round(w[i] / scale), scale = max |w| / 127 (0 when all are zero). Returns the scale.
float QuantizeChannel(const float* w, int n, int8_t* q);

// q[i] = round(x[i] / scale), scale = max |x| / kActivationMax (0 when all are zero). Returns the scale.
// Numbers that are not finite give unspecified results, no fault.
float QuantizeRow(const float* x, int n, int16_t* q);

// hi[i] in [-127, 127] and lo[i] in [-128, 127] with 256·hi + lo = q.
void SplitDigits(const int16_t* q, int n, int8_t* hi, int8_t* lo);

// (256·hi + lo) · scale of two digits' sums: exact integers, rounded to float once before the scale. Always inlined, because
// kernels call it that are compiled for one instruction set each.
[[gnu::always_inline]] inline float JoinDigits(int32_t hi, int32_t lo, float scale) {
  return static_cast<float>(256.0 * hi + lo) * scale;
}

}  // namespace stria
