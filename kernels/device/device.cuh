// Everything that device code may use of the machine it runs on: a closed list. nvcc makes them CUDA's, g++ makes them those
// of the host harness (kernels/simt), which runs the same source in tests. Masks name lanes of a warp; a collective
// completes when all of them have come to it, and no lane may have returned before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float16.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define STRIA_DEVICE __device__ __forceinline__
#define STRIA_UNROLL _Pragma("unroll")
#else
#include <cmath>
#include <cstring>

#include "kernels/simt/simt.h"
#define STRIA_DEVICE inline
#define STRIA_UNROLL
#endif

namespace stria::device {

inline constexpr int kWarp = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

struct alignas(16) Words4 {
  uint32_t x, y, z, w;
};
struct alignas(8) Words2 {
  uint32_t x, y;
};
struct alignas(8) Floats2 {
  float x, y;
};
struct alignas(4) Halves2 {
  Half x, y;
};
struct alignas(16) Halves8 {
  Half of[8];
};
struct alignas(16) Floats4 {
  float of[4];
};

#ifdef __CUDACC__

STRIA_DEVICE int Thread() { return static_cast<int>(threadIdx.x); }
STRIA_DEVICE int Threads() { return static_cast<int>(blockDim.x); }
STRIA_DEVICE int BlockX() { return static_cast<int>(blockIdx.x); }
STRIA_DEVICE int BlockY() { return static_cast<int>(blockIdx.y); }
STRIA_DEVICE int BlockZ() { return static_cast<int>(blockIdx.z); }

STRIA_DEVICE void SyncBlock() { __syncthreads(); }
STRIA_DEVICE void SyncWarp(uint32_t mask) { __syncwarp(mask); }
template <class T>
STRIA_DEVICE T Shuffle(uint32_t mask, T value, int source, int width = kWarp) {
  return __shfl_sync(mask, value, source, width);
}
template <class T>
STRIA_DEVICE T ShuffleXor(uint32_t mask, T value, int lanes, int width = kWarp) {
  return __shfl_xor_sync(mask, value, lanes, width);
}
STRIA_DEVICE uint32_t Ballot(uint32_t mask, bool predicate) { return __ballot_sync(mask, predicate); }

template <class T>
STRIA_DEVICE T AtomicAdd(T* address, T value) {
  return atomicAdd(address, value);
}

STRIA_DEVICE float Exp2(float x) { return exp2f(x); }
STRIA_DEVICE float Log1p(float x) { return log1pf(x); }
STRIA_DEVICE float Max(float a, float b) { return fmaxf(a, b); }  // the other, if one is NaN
STRIA_DEVICE float Min(float a, float b) { return fminf(a, b); }
STRIA_DEVICE float Abs(float x) { return fabsf(x); }
STRIA_DEVICE bool IsFinite(float x) { return isfinite(x); }
STRIA_DEVICE int RoundToInt(float x) { return __float2int_rn(x); }  // ties to even
STRIA_DEVICE float FloatOf(Half x) { return __half2float(__ushort_as_half(x.bits)); }
STRIA_DEVICE Half HalfOf(float x) {
  if (isnan(x)) return {static_cast<uint16_t>((__float_as_uint(x) >> 16 & 0x8000) | 0x7e00)};  // as base/float16.h
  return {__half_as_ushort(__float2half_rn(x))};
}

// One load or store of sizeof(T) bytes; the address is aligned to T.
template <class T>
STRIA_DEVICE T Load(const void* from) {
  return *static_cast<const T*>(from);
}

template <class T>
STRIA_DEVICE void Store(void* to, const T& value) {
  *static_cast<T*>(to) = value;
}

// Copies from global to shared memory that arrive later: after a WaitCopies<n>, all but the thread's latest n commits
// have. Others' copies need a barrier after their wait. Both addresses aligned to 16 bytes.
STRIA_DEVICE void CopyAsync16(void* shared, const void* global) {
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
STRIA_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
STRIA_DEVICE void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Tensor core: sum [16 × 8] += a [16 × 32] · b [32 × 8], exact. In lane i, with row = i / 4 and j = i mod 4: a holds bytes
// (row, 4j..), (row + 8, 4j..), (row, 16 + 4j..), (row + 8, 16 + 4j..); b bytes (4j.., column row), (16 + 4j..,
// column row); sum (row, 2j), (row, 2j + 1), (row + 8, 2j), (row + 8, 2j + 1). Bytes of a are unsigned, those of b as
// kSignedB says. All lanes of the warp call it.
template <bool kSignedB>
STRIA_DEVICE void MultiplyBytes(int32_t (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kSignedB) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

#else

using simt::Site;  // who calls, for the report

STRIA_DEVICE int Thread() { return simt::Thread(); }
STRIA_DEVICE int Threads() { return simt::Threads(); }
STRIA_DEVICE int BlockX() { return simt::Block().x; }
STRIA_DEVICE int BlockY() { return simt::Block().y; }
STRIA_DEVICE int BlockZ() { return simt::Block().z; }

STRIA_DEVICE void SyncBlock(Site site = Site::current()) { simt::Barrier(site); }
STRIA_DEVICE void SyncWarp(uint32_t mask, Site site = Site::current()) {
  simt::Collective("warp barrier", mask, nullptr, [](void* const*, uint32_t, Site) {}, site);
}
template <class T>
STRIA_DEVICE T Shuffle(uint32_t mask, T value, int source, int width = kWarp, Site site = Site::current()) {
  const int lane = Thread() % kWarp;
  return simt::ShuffleFrom(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), site);
}
template <class T>
STRIA_DEVICE T ShuffleXor(uint32_t mask, T value, int lanes, int width = kWarp, Site site = Site::current()) {
  const int lane = Thread() % kWarp, source = lane ^ lanes;
  return simt::ShuffleFrom(mask, value, source / width > lane / width ? lane : source, site);
}
STRIA_DEVICE uint32_t Ballot(uint32_t mask, bool predicate, Site site = Site::current()) {
  struct Operand {
    bool in;
    uint32_t out;
  } operand = {predicate, 0};
  simt::Collective(
      "ballot", mask, &operand,
      [](void* const* operands, uint32_t mask, Site) {
        uint32_t votes = 0;
        for (int i = 0; i < kWarp; ++i)
          if (mask >> i & 1) votes |= uint32_t{static_cast<Operand*>(operands[i])->in} << i;
        for (int i = 0; i < kWarp; ++i)
          if (mask >> i & 1) static_cast<Operand*>(operands[i])->out = votes;
      },
      site);
  return operand.out;
}

template <class T>
STRIA_DEVICE T AtomicAdd(T* address, T value) {
  const T before = *address;
  *address += value;
  return before;
}

STRIA_DEVICE float Exp2(float x) { return std::exp2(x); }
STRIA_DEVICE float Log1p(float x) { return std::log1p(x); }
STRIA_DEVICE float Max(float a, float b) { return std::fmax(a, b); }
STRIA_DEVICE float Min(float a, float b) { return std::fmin(a, b); }
STRIA_DEVICE float Abs(float x) { return std::fabs(x); }
STRIA_DEVICE bool IsFinite(float x) { return std::isfinite(x); }
STRIA_DEVICE int RoundToInt(float x) { return static_cast<int>(std::nearbyint(x)); }
STRIA_DEVICE float FloatOf(Half x) { return ToFloat(x); }
STRIA_DEVICE Half HalfOf(float x) { return ToHalf(x); }

template <class T>
STRIA_DEVICE T Load(const void* from, Site site = Site::current()) {
  simt::CheckAligned(from, alignof(T), site);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
STRIA_DEVICE void Store(void* to, const T& value, Site site = Site::current()) {
  simt::CheckAligned(to, alignof(T), site);
  std::memcpy(to, &value, sizeof(T));
}

STRIA_DEVICE void CopyAsync16(void* shared, const void* global, Site site = Site::current()) { simt::CopyAsync16(shared, global, site); }
STRIA_DEVICE void CommitCopies() { simt::CommitCopies(); }
template <int kPending>
STRIA_DEVICE void WaitCopies() {
  simt::WaitCopies(kPending);
}

template <bool kSignedB>
STRIA_DEVICE void MultiplyBytes(int32_t (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site site = Site::current()) {
  struct Operand {
    int32_t* sum;
    const uint32_t *a, *b;
  } operand = {sum, a, b};
  simt::Collective(
      "tensor core product", kAllLanes, &operand,
      [](void* const* operands, uint32_t, Site) {
        const auto lane = [&](int i) { return static_cast<const Operand*>(operands[i]); };
        for (int i = 0; i < kWarp; ++i) {
          for (int s = 0; s < 4; ++s) {
            const int row = i / 4, column = 2 * (i % 4) + s % 2;
            int32_t total = 0;
            for (int k = 0; k < 32; ++k) {
              const int shift = k % 4 * 8, a = lane(row * 4 + k / 4 % 4)->a[s / 2 + k / 16 * 2] >> shift & 255;
              const int b = lane(column * 4 + k / 4 % 4)->b[k / 16] >> shift & 255;
              total += a * (kSignedB ? static_cast<int8_t>(b) : b);
            }
            lane(i)->sum[s] += total;
          }
        }
      },
      site);
}

#endif

}  // namespace stria::device
