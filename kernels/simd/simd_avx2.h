// Eight lanes: AVX2, FMA and F16C. Meanings: simd_portable.h, operation by operation.
#pragma once

#include <immintrin.h>

namespace stria::STRIA_SIMD {

using F = __m256;
using I = __m256i;
inline constexpr int kLanes = 8;

inline F Set(float x) { return _mm256_set1_ps(x); }
inline F Load(const float* p) { return _mm256_loadu_ps(p); }
inline void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
inline F LoadHalf(const Half* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void StoreHalf(Half* p, F x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F Max(F a, F b) { return _mm256_max_ps(a, b); }
inline F Min(F a, F b) { return _mm256_min_ps(a, b); }
inline F Abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline F SelectEqual(F a, F b, F yes, F no) {
  return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}
inline I Round(F a) { return _mm256_cvtps_epi32(a); }
inline F ToFloat(I a) { return _mm256_cvtepi32_ps(a); }

inline float ReduceAdd(F a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float ReduceMax(F a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
inline float ReduceMin(F a) { return -ReduceMax(-a); }
inline void StoreSums4(float* p, F a, F b, F c, F d) {
  const __m256 x = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)));
}
inline void StoreMaxima4(float* p, F a, F b, F c, F d) {
  const F ac = _mm256_max_ps(_mm256_unpacklo_ps(a, c), _mm256_unpackhi_ps(a, c));
  const F bd = _mm256_max_ps(_mm256_unpacklo_ps(b, d), _mm256_unpackhi_ps(b, d));
  const F x = _mm256_max_ps(_mm256_unpacklo_ps(ac, bd), _mm256_unpackhi_ps(ac, bd));
  _mm_storeu_ps(p, _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)));
}

inline F AsFloat(I a) { return _mm256_castsi256_ps(a); }
inline I AsBits(F a) { return _mm256_castps_si256(a); }
inline I LoadBytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void StoreBytes(void* p, I a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }
inline I SetWord(int32_t x) { return _mm256_set1_epi32(x); }
inline I Broadcast4(const void* p) {
  return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(p)));
}
inline I And(I a, I b) { return _mm256_and_si256(a, b); }
inline I Or(I a, I b) { return _mm256_or_si256(a, b); }
inline I Add(I a, I b) { return _mm256_add_epi32(a, b); }
template <int n>
I ShiftRight16(I a) {
  return _mm256_srli_epi16(a, n);
}
template <int n>
I ShiftLeft32(I a) {
  return _mm256_slli_epi32(a, n);
}

template <bool is_signed>
void StoreLowBytes(void* p, const I (&x)[2]) {
  const __m256i words = _mm256_packs_epi32(x[0], x[1]);  // four of each, then the other four of each
  const __m128i low = _mm256_castsi256_si128(words), high = _mm256_extracti128_si256(words, 1);
  const __m128i bytes = is_signed ? _mm_packs_epi16(low, high) : _mm_packus_epi16(low, high);
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm_shuffle_epi32(bytes, _MM_SHUFFLE(3, 1, 2, 0)));
}
template <bool is_signed>
I PackBytes(const I (&x)[4]) {
  const I low = _mm256_packs_epi32(x[0], x[1]), high = _mm256_packs_epi32(x[2], x[3]);
  const I bytes = is_signed ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
inline void StoreLowWords0213(void* p, I a) {
  const __m256i order = _mm256_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1,  //
                                         0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1);
  const __m256i x = _mm256_shuffle_epi8(a, order);
  _mm_storeu_si128(static_cast<__m128i*>(p),
                   _mm_unpacklo_epi64(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}

// Byte products are summed in 16 bits, which DotsPerSum says how often is safe: vpmaddubsw adds two of them (it
// saturates only past 32,767, more than two of any of ours), and sums of unsigned products may use all 16 bits.
// Widen makes 32 bits of them.
constexpr int DotsPerSum(int max_product, bool is_signed) {
  return (is_signed ? 32767 : 65535) / (2 * max_product);
}
inline I DotBytes(I u8, I s8) { return _mm256_maddubs_epi16(u8, s8); }
inline I DotBytes(I sum, I u8, I s8) {
  I products;  // one statement: GCC would put the additions off and run out of registers for the products
  asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(u8), "x"(s8));
  return sum;
}
template <bool is_signed>
I Widen(I sum) {
  if constexpr (is_signed) return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
  return _mm256_add_epi32(_mm256_and_si256(sum, _mm256_set1_epi32(0xffff)), _mm256_srli_epi32(sum, 16));
}
inline I DotWords(I sum, I a, I b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }

inline void Prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace stria::STRIA_SIMD
