// The width of a page: bits per stored element, scales aside.
#pragma once

#include <cstdint>

namespace stria {

enum class Width : uint8_t { kInt2 = 2, kInt4 = 4, kInt8 = 8, kFp16 = 16 };

inline constexpr Width kAllWidths[] = {Width::kInt2, Width::kInt4, Width::kInt8, Width::kFp16};

constexpr int Bits(Width width) { return static_cast<int>(width); }
constexpr bool IsWidth(int bits) { return bits == 2 || bits == 4 || bits == 8 || bits == 16; }
constexpr Width Wider(Width a, Width b) { return Bits(a) >= Bits(b) ? a : b; }
constexpr const char* Name(Width width) {
  switch (width) {
    case Width::kInt2: return "int2";
    case Width::kInt4: return "int4";
    case Width::kInt8: return "int8";
    case Width::kFp16: return "fp16";
  }
  return "?";
}

}  // namespace stria
