// One thread's share of prefill attention: a block of query rows of one KV head. Compiled once per target.
#pragma once

#include "kernels/format/page_format.h"
#include "kernels/simd/simd.h"

namespace stria {

inline constexpr int kPrefillRows = 192;  // (query row, query head) pairs of a block, at most
inline constexpr int kPrefillKeys = 128;  // keys of one step

struct PrefillBlockArgs {
  int head_dim = 0;
  int group = 0;             // query heads that read this KV head
  int rows = 0;              // query rows; rows · group ≤ kPrefillRows
  int first_position = 0;    // of the first row; row i sees keys [0, first_position + i]
  float q_scale = 0;         // log2(e) / √head_dim
  const float* q = nullptr;  // row i, head g at q[i * row_stride + g * head_dim]
  float* out = nullptr;      // likewise
  ptrdiff_t row_stride = 0;
  const Half* keys = nullptr;    // [tokens, head_dim]
  const Half* values = nullptr;  // [tokens, head_dim]
  float* scratch = nullptr;      // PrefillScratchFloats, 64-byte aligned
};

constexpr size_t PrefillScratchFloats(int head_dim) {
  return size_t{1} * kPrefillRows * head_dim * 2    // queries, sums of p·v
         + size_t{2} * kPrefillKeys * head_dim      // packed keys, packed values
         + size_t{2} * kPrefillRows * kPrefillKeys  // scores, probabilities
         + size_t{2} * kPrefillRows + head_dim;     // maxima, sums of p; centre of the keys
}

STRIA_DECLARE_TARGETS(void, PrefillBlock, (const PrefillBlockArgs& args))

// The same in bfloat16 dot products: on machines that have them, and emulated for tests.
namespace avx512bf16 {
void PrefillBlockBf16(const PrefillBlockArgs& args);
}
namespace portable {
void PrefillBlockBf16(const PrefillBlockArgs& args);
}

}  // namespace stria
