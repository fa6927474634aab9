#include "model/gguf/ggml_type.h"

#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace stria {
namespace {

struct Supported {
  GgmlType type;
  BlockLayout layout;
};

constexpr Supported kSupported[] = {
    {GgmlType::kF32, {1, 4}},      {GgmlType::kF16, {1, 2}},      {GgmlType::kBF16, {1, 2}},
    {GgmlType::kQ4_0, {32, 18}},   {GgmlType::kQ4_1, {32, 20}},   {GgmlType::kQ5_0, {32, 22}},
    {GgmlType::kQ8_0, {32, 34}},   {GgmlType::kQ4_K, {256, 144}}, {GgmlType::kQ5_K, {256, 176}},
    {GgmlType::kQ6_K, {256, 210}},
};

// Indexed by number. Gaps are numbers that GGUF has withdrawn.
constexpr const char* kNames[] = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0",
};

}  // namespace

BlockLayout LayoutOf(GgmlType type) {
  for (const Supported& supported : kSupported) {
    if (supported.type == type) return supported.layout;
  }
  STRIA_CHECK(false);
}

std::string GgmlTypeName(uint32_t number) {
  if (number < std::size(kNames)) return kNames[number];
  return absl::StrCat("number ", number);
}

absl::StatusOr<GgmlType> SupportedGgmlType(uint32_t number) {
  std::string names;
  for (const Supported& supported : kSupported) {
    const uint32_t candidate = static_cast<uint32_t>(supported.type);
    if (candidate == number) return supported.type;
    absl::StrAppend(&names, names.empty() ? "" : ", ", GgmlTypeName(candidate));
  }
  return absl::UnimplementedError(
      absl::StrCat("storage type ", GgmlTypeName(number), " is not supported (supported: ", names, ")"));
}

}  // namespace stria
