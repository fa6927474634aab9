// What a transformer does between its matrices, one row at a time, float32. Compiled per instruction set,
// chosen at run time.
#pragma once

namespace stria {

// out[i] = x[i] / √(mean x² + epsilon) · weight[i] (Zhang and Sennrich, 2019). out may be x.
void RmsNorm(const float* x, const float* weight, float epsilon, int n, float* out);

// Rotates channel i with channel i + pairs by the angle whose cosine and sine are given, i < pairs; channels
// from 2 · pairs on are copied. x, out [head_dim]; out may be x.
void Rotate(const float* x, const float* cosines, const float* sines, int pairs, int head_dim, float* out);

// out[i] = silu(gate[i]) · up[i], silu(x) = x / (1 + e^-x).
void SwiGlu(const float* gate, const float* up, int n, float* out);

// sum[i] += x[i].
void AddInto(const float* x, int n, float* sum);

}  // namespace stria
