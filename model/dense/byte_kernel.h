// The inner loops of byte_int8.h: unsigned weight bytes times signed activation bytes, four to a 32-bit lane, which is
// what a byte dot product of the machine adds up. Compiled once per target that has exact ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/simd.h"

namespace stria {

inline constexpr int kBytePanelOutputs = 16;
inline constexpr int kByteGroup = 32;   // inputs of a prompt row that share a scale
inline constexpr int kByteInputs = 64;  // inputs are padded to a multiple of it

// Weights w lie as w + 128 in panels of 16 outputs: [panels, in / 4, 16, 4] bytes. What the 128 adds to a sum of
// activations is taken off at its start: an offset is −128 · Σ x.
struct ByteArgs {
  int rows = 0;
  int in = 0;   // a multiple of kByteInputs
  int out = 0;  // also the stride of y
  const uint8_t* weights = nullptr;
  const float* channel_scales = nullptr;  // [panels · 16]
  const int8_t* x = nullptr;              // digits: [rows, 2, in], 256 · first + second; groups: [rows, in]
  const float* x_scales = nullptr;        // digits: [rows]; groups: [rows, in / kByteGroup]
  const int32_t* offsets = nullptr;       // digits: [rows, 2]; groups: [rows, in / kByteGroup]
  float* y = nullptr;                     // [rows, out]
  const uint8_t* next = nullptr;          // what the caller reads after these panels, prefetched near their end
  size_t next_bytes = 0;
};

constexpr size_t BytePanelBytes(int in) { return size_t{1} * in * kBytePanelOutputs; }

// q [padded_in], scales and offsets [padded_in / kByteGroup] of x [in]: q = round(x / scale), scale = max |x| / 127 of
// its group. Numbers that are not finite give unspecified results, no fault.
STRIA_DECLARE_TARGETS(void, QuantizeGroups,
                      (const float* x, int in, int padded_in, int8_t* q, float* scales, int32_t* offsets))

// The outputs of panels [begin, end) for all rows. Digits are summed exactly and rounded to float once; the groups of a
// prompt row are added up in their order. So a row gets the same bits in any company.
STRIA_DECLARE_TARGETS(void, RunByteDigits, (const ByteArgs& args, int begin, int end))
STRIA_DECLARE_TARGETS(void, RunByteGroups, (const ByteArgs& args, int begin, int end))

}  // namespace stria
