// Linear layers y = x Wᵀ, packed once and reused at every row count. A backend is one arithmetic on this
// machine; the layers that it packs share its scratch and its compiled primitives, so they run one at a time,
// from one thread.
#pragma once

#include <cstddef>
#include <memory>

#include "base/check.h"

namespace stria {

class DenseLayer {
 public:
  virtual ~DenseLayer() = default;

  // y [rows, out] = x [rows, in] Wᵀ. x and y do not overlap. Opens OpenMP regions of the backend's thread
  // count. Allocates nothing for row counts that the backend was prepared for.
  virtual void Run(int rows, const float* x, float* y) = 0;

  // The same in the cheaper arithmetic of prompt rows, where the backend runs_prompts().
  virtual void RunPrompt(int rows, const float* x, float* y) { STRIA_CHECK(false); }

  virtual size_t weight_bytes() const = 0;
};

class DenseBackend {
 public:
  virtual ~DenseBackend() = default;

  // Packs weights [out, in] (row-major float32; not needed afterwards). The backend must outlive the layer.
  virtual std::unique_ptr<DenseLayer> Pack(const float* weights, int out, int in) = 0;

  // Compiles what Run needs for 1..max_rows rows of every shape packed so far.
  virtual void Prepare(int max_rows) = 0;

  // Whether what Pack returns serves prompt rows too, so that they need no copy of the weights of their own.
  virtual bool runs_prompts() const { return false; }

  virtual size_t scratch_bytes() const = 0;

  // For the log: "int8 vnni (oneDNN)".
  virtual const char* name() const = 0;
};

struct DenseOptions {
  int threads = 1;          // OpenMP team
  int max_rows = 1;         // most rows of one Run
  int max_prompt_rows = 0;  // and of one RunPrompt
};

// Weights rounded to bf16, activations too where the machine multiplies bf16 (AVX512-BF16, by oneDNN), f32 sums. There a
// row's last bits may depend on how many rows run with it. Elsewhere the same weights with float32 activations, by our
// own kernel, whose rows are the same bits in any company.
std::unique_ptr<DenseBackend> MakeFloatBackend(const DenseOptions& options);

// int8 weights with one scale per output channel. Decode rows: activations of two int8 digits with one scale per row
// (quantize.h); sums are exact integers, so a row's result is the same bits whatever runs beside it, at any thread count
// and on any instruction set. With exact byte dot products (AVX512-VNNI) the same weights serve prompt rows: one digit,
// a scale for every 32 inputs, twice the speed of bf16. Elsewhere our own 16-bit kernel: byte products of older
// instruction sets saturate (vpmaddubsw).
std::unique_ptr<DenseBackend> MakeInt8Backend(const DenseOptions& options);

}  // namespace stria
