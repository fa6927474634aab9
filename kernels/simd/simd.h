// The vector operations that the kernels need, once per target, all under the same names.
//
// A kernel is one source file in plain terms of F (float lanes) and I (32-bit integer lanes, or the bytes in
// them). The build compiles it once per target (simd.bzl) with that target's instructions, in that target's
// namespace STRIA_SIMD, so nothing compiled for one instruction set can be linked into the code of another.
// STRIA_DISPATCH picks one at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/float16.h"
#include "kernels/target.h"

#if defined(__AVX512BF16__)
#define STRIA_SIMD avx512bf16
#elif defined(__AVX512VNNI__)
#define STRIA_SIMD avx512vnni
#elif defined(__AVX512BW__)
#define STRIA_SIMD avx512
#elif defined(__AVX2__)
#define STRIA_SIMD avx2
#else
#define STRIA_SIMD portable
#endif

// Declares `ret name args` in every target's namespace.
#define STRIA_DECLARE_TARGETS(ret, name, args) \
  namespace portable {                         \
  ret name args;                               \
  }                                            \
  namespace avx2 {                             \
  ret name args;                               \
  }                                            \
  namespace avx512 {                           \
  ret name args;                               \
  }                                            \
  namespace avx512vnni {                       \
  ret name args;                               \
  }

// The function of that name for `target`.
#define STRIA_DISPATCH(target, name)                   \
  ((target) == Target::kAvx512Vnni ? &avx512vnni::name \
   : (target) == Target::kAvx512   ? &avx512::name     \
   : (target) == Target::kAvx2     ? &avx2::name       \
                                   : &portable::name)

#if defined(__AVX512BW__)
#include "kernels/simd/simd_avx512.h"
#elif defined(__AVX2__)
#include "kernels/simd/simd_avx2.h"
#else
#include "kernels/simd/simd_portable.h"
#endif

namespace stria::STRIA_SIMD {

inline constexpr int kRowVectors = 64 / (4 * kLanes);  // vectors in a 64-byte row of codes

// Exchanges rows and columns: butterflies over blocks of 1, 2, 4 … lanes.
template <int block, int... lane>
void TransposeBlocks(F (&x)[kLanes], std::integer_sequence<int, lane...> lanes) {
  if constexpr (block < kLanes) {
    for (int i = 0; i < kLanes; ++i) {
      if (i & block) continue;
      const F a = x[i], b = x[i + block];
      x[i] = __builtin_shufflevector(a, b, (lane & block ? lane - block + kLanes : lane)...);
      x[i + block] = __builtin_shufflevector(a, b, (lane & block ? lane + kLanes : lane + block)...);
    }
    TransposeBlocks<2 * block>(x, lanes);
  }
}
inline void Transpose(F (&x)[kLanes]) { TransposeBlocks<1>(x, std::make_integer_sequence<int, kLanes>{}); }

// 2^x, relative error under 3e-7. Below 2^-100 the result stays 2^-100 (denormals are slow); NaN stays NaN.
inline F Exp2(F x) {
  x = Max(Set(-100.0f), x);
  const F magic = Set(0x1.8p23f + 127);  // adding it rounds to an integer; in the low bits, an exponent's bias on top
  const F shifted = x + magic;
  const F f = x - (shifted - magic);
  F p = Set(1.327647151897645e-3f);
  p = Fma(p, f, Set(9.675541330676038e-3f));
  p = Fma(p, f, Set(5.550713274962921e-2f));
  p = Fma(p, f, Set(2.402211972393402e-1f));
  p = Fma(p, f, Set(6.931469670638626e-1f));
  p = Fma(p, f, Set(1.0f));
  return p * AsFloat(ShiftLeft32<23>(AsBits(shifted)));
}

}  // namespace stria::STRIA_SIMD
