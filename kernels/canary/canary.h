// The canary: how far attention over the last keys would drift if they were stored at INT2, INT4 or INT8.
// δ(b) = KL(softmax(q Kᵀ/√d) ‖ softmax(q quant_b(K)ᵀ/√d)), K the FP16 ring, natural logarithm, summed over keys, mean over
// query heads (EchoKV's reading with attention's own 1/√d). quant_b is exactly what SealKeys does to those keys.
#pragma once

#include "kernels/format/page_format.h"
#include "kernels/target.h"

namespace stria {

inline constexpr int kCanaryWidths = 3;   // INT2, INT4, INT8, in this order
inline constexpr int kCanaryMinKeys = 16;  // fewer valid keys say nothing

// key_ring [kv_heads, 64, head_dim], slots [0, valid) hold keys (valid = 64 once the ring has wrapped).
// q [heads, head_dim], unscaled. out [3]. Scales are taken over the valid keys only. Requires valid ≥ kCanaryMinKeys.
void CanaryReadingReference(const AttentionShape& shape, const Half* key_ring, int valid, const float* q, double* out);
void CanaryReading(Target target, const AttentionShape& shape, const Half* key_ring, int valid, const float* q, float* out);

}  // namespace stria
