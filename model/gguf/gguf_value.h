// One metadata value of a GGUF file. Strings and arrays point into the file's bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

namespace stria {

// GGUF's numbering of value types.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

struct GgufArray {
  GgufValueType element = GgufValueType::kUint8;
  uint64_t count = 0;
  std::span<const uint8_t> bytes;         // The elements as they lie in the file, little-endian, unaligned.
  std::vector<std::string_view> strings;  // Where element is kString: one view for each.
};

// Integers of every width become 64 bits wide, both floats become double.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

}  // namespace stria
