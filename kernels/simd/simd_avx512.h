// Sixteen lanes: AVX-512 F, BW, DQ, VL, and VNNI where compiled for. Meanings: simd_portable.h, operation by
// operation.
#pragma once

#include <immintrin.h>

namespace stria::STRIA_SIMD {

using F = __m512;
using I = __m512i;
inline constexpr int kLanes = 16;

inline F Set(float x) { return _mm512_set1_ps(x); }
inline F Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
inline F LoadHalf(const Half* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void StoreHalf(Half* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F Max(F a, F b) { return _mm512_max_ps(a, b); }
inline F Min(F a, F b) { return _mm512_min_ps(a, b); }
inline F Abs(F a) { return _mm512_abs_ps(a); }
inline F SelectEqual(F a, F b, F yes, F no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), no, yes);
}
inline I Round(F a) { return _mm512_cvtps_epi32(a); }
inline F ToFloat(I a) { return _mm512_cvtepi32_ps(a); }

inline __m256 LowHalf(F a) { return _mm512_castps512_ps256(a); }
inline __m256 HighHalf(F a) { return _mm512_extractf32x8_ps(a, 1); }
inline __m256 FoldAdd(F a) { return _mm256_add_ps(LowHalf(a), HighHalf(a)); }
inline float ReduceAdd(F a) {
  const __m256 y = FoldAdd(a);
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float ReduceMax(F a) {
  const __m256 y = _mm256_max_ps(LowHalf(a), HighHalf(a));
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
inline float ReduceMin(F a) { return -ReduceMax(-a); }
inline void StoreSums4(float* p, F a, F b, F c, F d) {
  const __m256 x =
      _mm256_hadd_ps(_mm256_hadd_ps(FoldAdd(a), FoldAdd(b)), _mm256_hadd_ps(FoldAdd(c), FoldAdd(d)));
  _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)));
}

inline void StoreMaxima4(float* p, F a, F b, F c, F d) {
  const __m256 w = _mm256_max_ps(LowHalf(a), HighHalf(a)), x = _mm256_max_ps(LowHalf(b), HighHalf(b));
  const __m256 y = _mm256_max_ps(LowHalf(c), HighHalf(c)), z = _mm256_max_ps(LowHalf(d), HighHalf(d));
  const __m256 wy = _mm256_max_ps(_mm256_unpacklo_ps(w, y), _mm256_unpackhi_ps(w, y));
  const __m256 xz = _mm256_max_ps(_mm256_unpacklo_ps(x, z), _mm256_unpackhi_ps(x, z));
  const __m256 all = _mm256_max_ps(_mm256_unpacklo_ps(wy, xz), _mm256_unpackhi_ps(wy, xz));
  _mm_storeu_ps(p, _mm_max_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

inline F AsFloat(I a) { return _mm512_castsi512_ps(a); }
inline I AsBits(F a) { return _mm512_castps_si512(a); }
inline I LoadBytes(const void* p) { return _mm512_loadu_si512(p); }
inline void StoreBytes(void* p, I a) { _mm512_storeu_si512(p, a); }
inline I SetWord(int32_t x) { return _mm512_set1_epi32(x); }
inline I Broadcast4(const void* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}
inline I And(I a, I b) { return _mm512_and_si512(a, b); }
inline I Or(I a, I b) { return _mm512_or_si512(a, b); }
inline I Add(I a, I b) { return _mm512_add_epi32(a, b); }
template <int n>
I ShiftRight16(I a) {
  return _mm512_srli_epi16(a, n);
}
template <int n>
I ShiftLeft32(I a) {
  return _mm512_slli_epi32(a, n);
}

template <bool is_signed>
void StoreLowBytes(void* p, const I (&x)[1]) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x[0]));
}
template <bool is_signed>
I PackBytes(const I (&x)[4]) {
  const I low = _mm512_packs_epi32(x[0], x[1]), high = _mm512_packs_epi32(x[2], x[3]);
  const I bytes = is_signed ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high);
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes);
}
inline void StoreLowWords0213(void* p, I a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_shuffle_epi32(a, _MM_PERM_DBCA)));
}

#if defined(__AVX512VNNI__)
constexpr int DotsPerSum(int, bool) { return 1 << 20; }
inline I DotBytes(I sum, I u8, I s8) { return _mm512_dpbusd_epi32(sum, u8, s8); }
inline I DotBytes(I u8, I s8) { return DotBytes(SetWord(0), u8, s8); }
template <bool is_signed>
I Widen(I sum) {
  return sum;
}
inline I DotWords(I sum, I a, I b) { return _mm512_dpwssd_epi32(sum, a, b); }
#else
// Byte products are summed in 16 bits, as in simd_avx2.h.
constexpr int DotsPerSum(int max_product, bool is_signed) {
  return (is_signed ? 32767 : 65535) / (2 * max_product);
}
inline I DotBytes(I u8, I s8) { return _mm512_maddubs_epi16(u8, s8); }
inline I DotBytes(I sum, I u8, I s8) {
  I products;
  asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+v"(sum), "=&v"(products) : "v"(u8), "v"(s8));
  return sum;
}
template <bool is_signed>
I Widen(I sum) {
  if constexpr (is_signed) return _mm512_madd_epi16(sum, _mm512_set1_epi16(1));
  return _mm512_add_epi32(_mm512_and_si512(sum, SetWord(0xffff)), _mm512_srli_epi32(sum, 16));
}
inline I DotWords(I sum, I a, I b) { return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)); }
#endif

#if defined(__AVX512BF16__)
#define STRIA_SIMD_BF16 1
inline void StoreBf16(uint16_t* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
inline F DotBf16(F sum, I a, I b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
#endif

inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace stria::STRIA_SIMD
