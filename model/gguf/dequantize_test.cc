#include "model/gguf/dequantize.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace stria {
namespace {

std::vector<uint8_t> ReadFile(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return std::vector<uint8_t>(std::istreambuf_iterator<char>(in), {});
}

uint32_t U32(const std::vector<uint8_t>& bytes, size_t at) {
  uint32_t value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// Written by testdata/make_dequantize_golden.py with another implementation of the formats. Bit for bit: the
// order of the float operations is the formats' own.
TEST(Dequantize, EqualsTheGoldenFile) {
  const std::vector<uint8_t> golden = ReadFile("model/gguf/testdata/dequantize_golden.bin");
  std::set<std::string> seen;
  for (size_t at = 0; at + 12 <= golden.size();) {
    const uint32_t number = U32(golden, at), elements = U32(golden, at + 4), bytes = U32(golden, at + 8);
    ASSERT_TRUE(SupportedGgmlType(number).ok());
    const GgmlType type = *SupportedGgmlType(number);
    const BlockLayout layout = LayoutOf(type);
    ASSERT_EQ(elements / layout.elements * layout.bytes, bytes);
    std::vector<float> actual(elements, -1), expected(elements);
    Dequantize(type, golden.data() + at + 12, elements, actual.data());
    std::memcpy(expected.data(), golden.data() + at + 12 + bytes, elements * sizeof(float));
    for (uint32_t i = 0; i < elements; ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(actual[i])) << GgmlTypeName(number) << " element " << i;
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i]))
            << GgmlTypeName(number) << " element " << i << ": " << actual[i] << " instead of " << expected[i];
      }
    }
    seen.insert(GgmlTypeName(number));
    at += 12 + bytes + elements * sizeof(float);
  }
  EXPECT_EQ(seen, (std::set<std::string>{"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q5_K",
                                         "Q6_K"}));
}

// One block worked out by hand: scale 0.5, minimum -1, nibbles 0..15 low, 15..0 high.
TEST(Dequantize, Q4_1ByHand) {
  uint8_t block[20] = {0x00, 0x38, 0x00, 0xbc};
  for (int i = 0; i < 16; ++i) block[4 + i] = static_cast<uint8_t>(i | (15 - i) << 4);
  float out[32];
  Dequantize(GgmlType::kQ4_1, block, 32, out);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(out[i], 0.5f * i - 1);
    EXPECT_EQ(out[16 + i], 0.5f * (15 - i) - 1);
  }
}

TEST(Dequantize, NothingBeyondTheCountIsWritten) {
  const std::vector<uint8_t> zeros(1024);
  for (uint32_t number = 0; number < 64; ++number) {
    const auto type = SupportedGgmlType(number);
    if (!type.ok()) continue;
    const int count = 2 * LayoutOf(*type).elements;
    std::vector<float> out(count + 1, 7);
    Dequantize(*type, zeros.data(), count, out.data());
    EXPECT_EQ(out[count], 7);
    EXPECT_EQ(out[count - 1], 0);
  }
}

TEST(GgmlType, UnsupportedTypesAreNamed) {
  EXPECT_EQ(SupportedGgmlType(10).status().message().substr(0, 36), "storage type Q2_K is not supported (");
  EXPECT_EQ(SupportedGgmlType(39).status().message().substr(0, 18), "storage type MXFP4");
  EXPECT_EQ(SupportedGgmlType(4000000000u).status().message().substr(0, 29), "storage type number 400000000");
}

}  // namespace
}  // namespace stria
