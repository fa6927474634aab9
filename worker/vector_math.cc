#include "worker/vector_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace stria {
namespace {

// exp(x) for x ≤ 0: 2^n · p(f), n = round(x / ln 2), |f| ≤ ln 2 / 2, p the Taylor polynomial of degree 7 (error < 2e-8).
// Plain arithmetic on purpose, so that compilers turn the loops around it into vectors. Below −87 and for NaN: 0.
inline float Exp(float x) {
  const float clamped = x > -87.0f ? x : -87.0f;  // NaN too
  const float n = (clamped * 1.44269504f + 12582912.0f) - 12582912.0f;  // rounds to nearest: 1.5 · 2^23 has unit spacing
  const float f = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * f + 1.0f / 720;
  p = p * f + 1.0f / 120;
  p = p * f + 1.0f / 24;
  p = p * f + 1.0f / 6;
  p = p * f + 0.5f;
  p = p * f + 1.0f;
  p = p * f + 1.0f;
  const float power = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return x > -87.0f ? p * power : 0.0f;
}

}  // namespace

float MaxOf(const float* values, size_t count) {
  float best = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : best)
  for (size_t i = 0; i < count; ++i) best = values[i] > best ? values[i] : best;
  return best;
}

double SumExp(const float* values, size_t count, float best, float scale, double* block_sums) {
  double total = 0;
  for (size_t begin = 0; begin < count; begin += kMathBlock) {
    const size_t end = std::min(begin + kMathBlock, count);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = begin; i < end; ++i) sum += Exp((values[i] - best) * scale);
    if (block_sums != nullptr) block_sums[begin / kMathBlock] = sum;
    total += sum;
  }
  return total;
}

float ExpOf(float value, float best, float scale) { return Exp((value - best) * scale); }

}  // namespace stria
