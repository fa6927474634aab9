// Four lanes in the compiler's own vector types: runs everywhere, and says what each operation means.
#pragma once

#include <bit>
#include <cstring>

namespace stria::STRIA_SIMD {

using F = float __attribute__((vector_size(16)));
using I = int32_t __attribute__((vector_size(16)));
inline constexpr int kLanes = 4;

inline F Set(float x) { return F{x, x, x, x}; }
inline F Load(const float* p) {
  F x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline void Store(float* p, F x) { std::memcpy(p, &x, sizeof x); }
inline F LoadHalf(const Half* p) {
  return F{stria::ToFloat(p[0]), stria::ToFloat(p[1]), stria::ToFloat(p[2]), stria::ToFloat(p[3])};
}
inline void StoreHalf(Half* p, F x) {
  for (int i = 0; i < kLanes; ++i) p[i] = ToHalf(x[i]);
}
inline F Fma(F a, F b, F c) { return a * b + c; }  // rounded once or twice
inline F Max(F a, F b) { return a > b ? a : b; }   // b where either is NaN
inline F Min(F a, F b) { return a < b ? a : b; }   // b where either is NaN
inline F Abs(F a) { return reinterpret_cast<F>(reinterpret_cast<I>(a) & 0x7fffffff); }
inline F SelectEqual(F a, F b, F yes, F no) { return a == b ? yes : no; }
// Nearest, ties to even; any integer where |a| ≥ 2^22 or NaN.
inline I Round(F a) {
  const F magic = Set(0x1.8p23f);
  return reinterpret_cast<I>(a + magic) - reinterpret_cast<I>(magic);
}
inline F ToFloat(I a) { return __builtin_convertvector(a, F); }

inline float ReduceAdd(F a) { return (a[0] + a[2]) + (a[1] + a[3]); }
inline float ReduceMax(F a) {
  float max = a[0];
  for (int i = 1; i < kLanes; ++i) max = max > a[i] ? max : a[i];
  return max;
}
inline float ReduceMin(F a) { return -ReduceMax(-a); }
inline void StoreSums4(float* p, F a, F b, F c, F d) {  // the sums of a, b, c and d
  const F sums = {ReduceAdd(a), ReduceAdd(b), ReduceAdd(c), ReduceAdd(d)};
  Store(p, sums);
}
inline void StoreMaxima4(float* p, F a, F b, F c, F d) {  // the largest of a, of b, of c and of d
  const F maxima = {ReduceMax(a), ReduceMax(b), ReduceMax(c), ReduceMax(d)};
  Store(p, maxima);
}

inline F AsFloat(I a) { return reinterpret_cast<F>(a); }
inline I AsBits(F a) { return reinterpret_cast<I>(a); }
inline I LoadBytes(const void* p) {
  I x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline void StoreBytes(void* p, I a) { std::memcpy(p, &a, sizeof a); }
inline I SetWord(int32_t x) { return I{x, x, x, x}; }
inline I Broadcast4(const void* p) {  // four bytes, to every lane
  int32_t word;
  std::memcpy(&word, p, sizeof word);
  return SetWord(word);
}
inline I And(I a, I b) { return a & b; }
inline I Or(I a, I b) { return a | b; }
inline I Add(I a, I b) {  // wraps: exponents of infinite and NaN inputs overflow, and are discarded
  using U = uint32_t __attribute__((vector_size(16)));
  return reinterpret_cast<I>(reinterpret_cast<U>(a) + reinterpret_cast<U>(b));
}
template <int n>
I ShiftRight16(I a) {  // logical, each 16-bit half of a lane by itself
  using U = uint16_t __attribute__((vector_size(16)));
  return reinterpret_cast<I>(reinterpret_cast<U>(a) >> n);
}
template <int n>
I ShiftLeft32(I a) {
  using U = uint32_t __attribute__((vector_size(16)));
  return reinterpret_cast<I>(reinterpret_cast<U>(a) << n);
}

// Sixteen numbers as bytes, signed or unsigned ones, in whose range they lie.
template <bool is_signed>
void StoreLowBytes(void* p, const I (&x)[4]) {
  uint8_t bytes[16];
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>(x[i / 4][i % 4]);
  std::memcpy(p, bytes, sizeof bytes);
}
// The numbers of four vectors as bytes, in order.
template <bool is_signed>
I PackBytes(const I (&x)[4]) {
  I bytes;
  StoreLowBytes<is_signed>(&bytes, x);
  return bytes;
}
inline void StoreLowWords0213(void* p, I a) {  // the low 16 bits of each lane, lanes 0 2 1 3 of every four
  const uint16_t words[] = {uint16_t(a[0]), uint16_t(a[2]), uint16_t(a[1]), uint16_t(a[3])};
  std::memcpy(p, words, sizeof words);
}

// DotBytes adds to each lane (of whatever width; Widen makes it 32 bits) the products of its four unsigned
// and four signed bytes. At most DotsPerSum(largest product, whether products may be negative) of them may be
// added up before Widen<that>.
constexpr int DotsPerSum(int, bool) { return 1 << 20; }
inline I DotBytes(I sum, I u8, I s8) {
  using S8 = int8_t __attribute__((vector_size(16)));
  using U8 = uint8_t __attribute__((vector_size(16)));
  const U8 u = reinterpret_cast<U8>(u8);
  const S8 s = reinterpret_cast<S8>(s8);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 4 * lane; i < 4 * lane + 4; ++i) sum[lane] += int32_t{u[i]} * s[i];
  }
  return sum;
}
inline I DotBytes(I u8, I s8) { return DotBytes(SetWord(0), u8, s8); }
template <bool is_signed>
I Widen(I sum) {
  return sum;
}
inline I DotWords(I sum, I a, I b) {  // two signed 16-bit products to each lane
  using S16 = int16_t __attribute__((vector_size(16)));
  const S16 x = reinterpret_cast<S16>(a), y = reinterpret_cast<S16>(b);
  for (int lane = 0; lane < kLanes; ++lane) {
    sum[lane] += int32_t{x[2 * lane]} * y[2 * lane] + int32_t{x[2 * lane + 1]} * y[2 * lane + 1];
  }
  return sum;
}

// Bfloat16 pairs: lanes of two bfloat16 each. On real machines only where AVX-512 has them; here so that
// tests can run it.
#define STRIA_SIMD_BF16 1
inline void StoreBf16(uint16_t* p, F x) {
  for (int i = 0; i < kLanes; ++i) p[i] = ToBFloat16(x[i]).bits;
}
inline F DotBf16(F sum, I a, I b) {
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t x = static_cast<uint32_t>(a[i]), y = static_cast<uint32_t>(b[i]);
    sum[i] += std::bit_cast<float>(x << 16) * std::bit_cast<float>(y << 16);
    sum[i] += std::bit_cast<float>(x & 0xffff0000u) * std::bit_cast<float>(y & 0xffff0000u);
  }
  return sum;
}

// Into the second cache: prefetches into the first one are few at a time and hold back the loads behind them (57 %
// of the read limit on Zen 4 instead of 91 %, FP16 pages).
inline void Prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace stria::STRIA_SIMD
