// The case table of sealing and appending: the reference's bytes, whoever writes them.
#include "kernels/format/seal_cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/format/seal_reference.h"
#include "kernels/format/seal_test_data.h"

namespace stria {
namespace {

using namespace seal_test;  // NOLINT: test data

class SealTest : public testing::TestWithParam<SealPath> {
 protected:
  void ExpectReferenceBytes(const Block& block) {
    for (Width width : kAllWidths) {
      Page keys(KeyPageBytes(block.shape, width)), expected_keys(keys.bytes);
      GetParam().seal(block.shape, width, block.View(), /*keys=*/true, keys.data.get());
      SealKeysReference(block.shape, width, block.View(), expected_keys.data.get());
      EXPECT_TRUE(keys == expected_keys) << "keys " << Name(width) << " head_dim " << block.shape.head_dim;
      EXPECT_TRUE(keys.NothingBehind());
      Page values(ValuePageBytes(block.shape, width)), expected_values(values.bytes);
      GetParam().seal(block.shape, width, block.View(), /*keys=*/false, values.data.get());
      SealValuesReference(block.shape, width, block.View(), expected_values.data.get());
      EXPECT_TRUE(values == expected_values)
          << "values " << Name(width) << " head_dim " << block.shape.head_dim;
      EXPECT_TRUE(values.NothingBehind());
    }
  }
};

TEST_P(SealTest, WritesTheReferencesBytes) {
  for (const AttentionShape& shape : kShapes) ExpectReferenceBytes(NormalBlock(shape));
}

TEST_P(SealTest, WritesTheReferencesBytesForUnusualNumbers) {
  const AttentionShape shape = {2, 2, 64};
  const float kInf = std::numeric_limits<float>::infinity();
  ExpectReferenceBytes(Block(shape, [](int, int, int) { return 0.0f; }));
  ExpectReferenceBytes(Block(shape, [](int, int, int) { return -3.25f; }));
  ExpectReferenceBytes(Block(shape, [](int, int t, int c) { return (t + c) % 2 ? 65504.0f : -65504.0f; }));
  ExpectReferenceBytes(
      Block(shape, [](int, int t, int c) { return 6e-8f * ((t * 7 + c) % 5); }));  // subnormal
  ExpectReferenceBytes(
      Block(shape, [](int, int t, int c) { return 1000.0f + (t * 31 + c) % 3; }));  // bias ≫ range
  ExpectReferenceBytes(
      Block(shape, [&](int, int t, int c) { return t == 9 && c == 5 ? kInf : 1.0f * t - c; }));
  ExpectReferenceBytes(
      Block(shape, [&](int, int t, int c) { return t == 0 && c == 5 ? -kInf : 1.0f * t - c; }));
  ExpectReferenceBytes(
      Block(shape, [&](int, int t, int c) { return t == 63 && c == 63 ? -std::nanf("7") : 1.0f * t - c; }));
}

TEST_P(SealTest, AppendTokenRoundsIntoItsSlotOnly) {
  for (const AttentionShape& shape : kShapes) {
    const int dim = shape.head_dim;
    std::vector<float> k(shape.kv_heads * dim), v(k.size());
    for (size_t i = 0; i < k.size(); ++i) k[i] = Number(8, i), v[i] = 1e-7f * Number(9, i);
    k[3] = 1e6f;  // beyond FP16: infinity
    std::vector<Half> keys(size_t{1} * shape.kv_heads * kPageTokens * dim, Half{0xffff}), values(keys);
    GetParam().append(shape, k.data(), v.data(), 5, keys.data(), values.data(), ptrdiff_t{1} * kPageTokens * dim);
    for (int h = 0; h < shape.kv_heads; ++h) {
      for (int t = 0; t < kPageTokens; ++t) {
        for (int c = 0; c < dim; ++c) {
          const int at = (h * kPageTokens + t) * dim + c;
          ASSERT_EQ(keys[at].bits, t == 5 ? ToHalf(k[h * dim + c]).bits : 0xffff);
          ASSERT_EQ(values[at].bits, t == 5 ? ToHalf(v[h * dim + c]).bits : 0xffff);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, SealTest, testing::ValuesIn(SealPaths()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stria
