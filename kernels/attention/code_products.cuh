// Codes times digits, in integers: for 16 lanes of a CodeMatrix (tokens of a key, channels of a value) and 8 query heads,
// sum[lane][head] = Σ over the inner index of code · digit. Two policies with the same exact sums.
//
// A thread of a warp, with row = thread / 4 and j = thread mod 4, gets the sums (row, 2j), (row, 2j + 1), (row + 8, 2j),
// (row + 8, 2j + 1), as the tensor core hands them out. The order of the inner index is free as long as codes and digits
// agree: thread j takes groups of four 8s + 2j and 8s + 2j + 1, which lie in one row of 2- and 4-bit codes.
#pragma once

#include "kernels/device/device.cuh"
#include "kernels/format/page_layout.h"

namespace stria::device {

// Four codes of inner group `group` of a lane. `codes` is a block of 16 lanes of a CodeMatrix.
template <int kBits>
STRIA_DEVICE uint32_t CodesOf(const uint8_t* codes, int lane, int group) {
  constexpr int kPlaces = 8 / kBits;
  constexpr uint32_t kMask = ((1u << kBits) - 1) * 0x01010101u;
  const uint32_t word = Load<uint32_t>(codes + (group / kPlaces * kRowLanes + lane) * kGroupInner);
  return word >> (group % kPlaces * kBits) & kMask;
}

// digits [8 heads] rows of `stride` bytes, zero from `inner` up to a multiple of 32; codes beyond `inner` are read (from
// whatever follows them in shared memory) and weigh nothing.
struct TensorCores {
  template <int kBits, bool kSignedDigits>
  static STRIA_DEVICE void AddProducts(const uint8_t* codes, int inner, const uint8_t* digits, int stride,
                                       int32_t (&sum)[4]) {
    const int row = Thread() % kWarp / 4, j = Thread() % 4;
    for (int group = 2 * j; group * kGroupInner < ((inner + 31) & ~31); group += 8) {
      const uint32_t a[4] = {CodesOf<kBits>(codes, row, group), CodesOf<kBits>(codes, row + 8, group),
                             CodesOf<kBits>(codes, row, group + 1), CodesOf<kBits>(codes, row + 8, group + 1)};
      const Words2 digit = Load<Words2>(digits + row * stride + group * kGroupInner);
      const uint32_t b[2] = {digit.x, digit.y};
      MultiplyBytes<kSignedDigits>(sum, a, b);
    }
  }
};

struct ScalarTwin {
  template <int kBits, bool kSignedDigits>
  static STRIA_DEVICE void AddProducts(const uint8_t* codes, int inner, const uint8_t* digits, int stride,
                                       int32_t (&sum)[4]) {
    const int row = Thread() % kWarp / 4, j = Thread() % 4;
    for (int i = 0; i < 4; ++i) {
      const uint8_t* digit = digits + (2 * j + i % 2) * stride;
      for (int k = 0; k < inner; ++k) {
        const int code = CodesOf<kBits>(codes, row + i / 2 * 8, k / kGroupInner) >> (k % kGroupInner * 8) & 255;
        sum[i] += code * (kSignedDigits ? static_cast<int8_t>(digit[k]) : digit[k]);
      }
    }
  }
};

}  // namespace stria::device
