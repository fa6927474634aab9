// The storage types of GGUF tensors: which are supported, and how many elements a block of each holds in how
// many bytes.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace stria {

// GGUF's numbering. Every type here can be dequantised; a file with any other is refused when it is opened.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

// Rows are stored as whole blocks, one after the other, without padding.
struct BlockLayout {
  int elements = 1;
  int bytes = 0;
};

BlockLayout LayoutOf(GgmlType type);

// The name of any type that GGUF ever numbered, supported or not ("IQ2_XS"); "number 99" for an unknown
// number.
std::string GgmlTypeName(uint32_t number);

// Unimplemented, with the type's name, when it is not one of the above.
absl::StatusOr<GgmlType> SupportedGgmlType(uint32_t number);

}  // namespace stria
