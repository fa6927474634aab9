#include "kernels/format/seal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/format/page_layout.h"
#include "kernels/format/quantizer.h"
#include "kernels/format/seal_reference.h"

namespace stria {
namespace {

const AttentionShape kShapes[] = {{1, 1, 16}, {9, 3, 64}, {2, 1, 80}, {4, 2, 128}, {1, 1, 256}};

float Number(uint64_t seed, uint64_t i) {
  return static_cast<float>(std::sqrt(-2 * std::log(Uniform(seed, 0, i) + 1e-12)) *
                            std::cos(2 * M_PI * Uniform(seed, 1, i)));
}

// 64 tokens of all heads inside a longer staging whose other tokens are NaN.
struct Block {
  static constexpr int kCapacity = 100;
  std::vector<Half> data;
  AttentionShape shape;

  Block(const AttentionShape& shape, const std::function<float(int head, int token, int channel)>& number)
      : data(size_t{1} * shape.kv_heads * kCapacity * shape.head_dim, Half{0xffff}), shape(shape) {
    for (int h = 0; h < shape.kv_heads; ++h) {
      for (int t = 0; t < kPageTokens; ++t) {
        for (int c = 0; c < shape.head_dim; ++c) at(h, t, c) = ToHalf(number(h, t, c));
      }
    }
  }
  Half& at(int h, int t, int c) { return data[(h * kCapacity + t) * shape.head_dim + c]; }
  KvBlock View() const { return {data.data(), ptrdiff_t{1} * kCapacity * shape.head_dim}; }
};

Block NormalBlock(const AttentionShape& shape) {
  return Block(shape, [&](int h, int t, int c) { return Number(h + 1, t * shape.head_dim + c) + c % 7; });
}

struct Page {
  size_t bytes;
  std::unique_ptr<uint8_t, decltype(&std::free)> data;
  explicit Page(size_t bytes)
      : bytes(bytes), data(static_cast<uint8_t*>(std::aligned_alloc(64, bytes + 64)), &std::free) {
    std::memset(data.get(), 0xab, bytes + 64);
  }
  bool operator==(const Page& other) const { return std::memcmp(data.get(), other.data.get(), bytes) == 0; }
  bool NothingBehind() const {
    for (int i = 0; i < 64; ++i) {
      if (data.get()[bytes + i] != 0xab) return false;
    }
    return true;
  }
};

class SealTest : public testing::TestWithParam<Target> {
 protected:
  void ExpectReferenceBytes(const Block& block) {
    for (Width width : kAllWidths) {
      Page keys(KeyPageBytes(block.shape, width)), expected_keys(keys.bytes);
      SealKeys(GetParam(), block.shape, width, block.View(), keys.data.get());
      SealKeysReference(block.shape, width, block.View(), expected_keys.data.get());
      EXPECT_TRUE(keys == expected_keys) << "keys " << Name(width) << " head_dim " << block.shape.head_dim;
      EXPECT_TRUE(keys.NothingBehind());
      Page values(ValuePageBytes(block.shape, width)), expected_values(values.bytes);
      SealValues(GetParam(), block.shape, width, block.View(), values.data.get());
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
    AppendToken(GetParam(), shape, k.data(), v.data(), 5, keys.data(), values.data(),
                ptrdiff_t{1} * kPageTokens * dim);
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

INSTANTIATE_TEST_SUITE_P(Targets, SealTest,
                         testing::ValuesIn(AvailableTargets().begin(), AvailableTargets().end()),
                         [](const auto& info) { return std::string(Name(info.param)); });

// ---- What a page means: worked out here from the formula, not from the code under test ----

TEST(PageFormatTest, BytesPerPageAreBitsPlusHalfPerElement) {
  const AttentionShape shape = {9, 3, 64};
  const size_t elements = 3 * 64 * 64;
  EXPECT_EQ(KeyPageBytes(shape, Width::kInt2), elements * 5 / 2 / 8);
  EXPECT_EQ(KeyPageBytes(shape, Width::kInt4), elements * 9 / 2 / 8);
  EXPECT_EQ(KeyPageBytes(shape, Width::kInt8), elements * 17 / 2 / 8);
  EXPECT_EQ(KeyPageBytes(shape, Width::kFp16), elements * 2);
  for (Width width : kAllWidths) {
    EXPECT_EQ(ValuePageBytes(shape, width), KeyPageBytes(shape, width));
    for (const AttentionShape& other : kShapes) {
      EXPECT_EQ(KeyPageBytes(other, width) % 64, 0u);
      EXPECT_EQ(ValuePageBytes(other, width) % 64, 0u);
    }
  }
}

// The worked example of docs/formats.md.
TEST(PageFormatTest, CodeOfToken21Channel13) {
  const CodeMatrix matrix = KeyCodes(64, Width::kInt4);
  EXPECT_EQ(matrix.ByteOf(21, 13), 597u);
  EXPECT_EQ(matrix.ShiftOf(13), 4);
}

TEST(PageFormatTest, EveryCodeHasABitFieldOfItsOwn) {
  for (int bits : {2, 4, 8}) {
    for (int dim : {16, 64, 80}) {
      const CodeMatrix matrix = {bits, kPageTokens, dim};
      std::vector<int> used(matrix.bytes() * 8);
      for (int lane = 0; lane < matrix.lanes; ++lane) {
        for (int i = 0; i < matrix.inner; ++i) {
          for (int b = 0; b < bits; ++b) ++used[matrix.ByteOf(lane, i) * 8 + matrix.ShiftOf(i) + b];
        }
      }
      EXPECT_EQ(std::count(used.begin(), used.end(), 1), static_cast<ptrdiff_t>(used.size()));
    }
  }
}

// Every number comes back within half a step of the ideal quantiser, plus what storing scale and middle in
// FP16 can move it by.
TEST(PageFormatTest, ErrorIsHalfAStepPerChannelOfKeysAndPerTokenOfValues) {
  for (const AttentionShape& shape : kShapes) {
    Block block = NormalBlock(shape);
    const int dim = shape.head_dim;
    std::vector<float> out(size_t{1} * shape.kv_heads * kPageTokens * dim);
    const auto x = [&](int h, int t, int c) { return ToFloat(block.at(h, t, c)); };
    const auto bound = [](float min, float max, int bits) {
      const float step = (max - min) / ((1 << bits) - 1);
      return step / 2 + (max - min) / 2 * 0x1p-11f + std::max(std::abs(min), std::abs(max)) * 0x1p-11f +
             1e-6f;
    };
    for (Width width : {Width::kInt2, Width::kInt4, Width::kInt8}) {
      Page page(std::max(KeyPageBytes(shape, width), ValuePageBytes(shape, width)));
      SealKeys(BestTarget(), shape, width, block.View(), page.data.get());
      UnsealKeys(shape, {page.data.get(), width}, out.data());
      for (int h = 0; h < shape.kv_heads; ++h) {
        for (int c = 0; c < dim; ++c) {
          float min = x(h, 0, c), max = min;
          for (int t = 0; t < kPageTokens; ++t)
            min = std::min(min, x(h, t, c)), max = std::max(max, x(h, t, c));
          for (int t = 0; t < kPageTokens; ++t) {
            ASSERT_NEAR(out[(h * kPageTokens + t) * dim + c], x(h, t, c), bound(min, max, Bits(width)))
                << Name(width);
          }
        }
      }
      SealValues(BestTarget(), shape, width, block.View(), page.data.get());
      UnsealValues(shape, {page.data.get(), width}, out.data());
      for (int h = 0; h < shape.kv_heads; ++h) {
        for (int t = 0; t < kPageTokens; ++t) {
          float min = x(h, t, 0), max = min;
          for (int c = 0; c < dim; ++c) min = std::min(min, x(h, t, c)), max = std::max(max, x(h, t, c));
          for (int c = 0; c < dim; ++c) {
            ASSERT_NEAR(out[(h * kPageTokens + t) * dim + c], x(h, t, c), bound(min, max, Bits(width)))
                << Name(width);
          }
        }
      }
    }
  }
}

TEST(PageFormatTest, Fp16PagesAreExact) {
  const AttentionShape shape = {9, 3, 64};
  Block block = NormalBlock(shape);
  Page page(KeyPageBytes(shape, Width::kFp16));
  std::vector<float> out(3 * 64 * 64);
  SealKeys(BestTarget(), shape, Width::kFp16, block.View(), page.data.get());
  UnsealKeys(shape, {page.data.get(), Width::kFp16}, out.data());
  for (int i = 0; i < 3 * 64 * 64; ++i) ASSERT_EQ(out[i], ToFloat(block.at(i / 4096, i / 64 % 64, i % 64)));
}

// Rounding has no bias: over many numbers the mean error is far below a step.
TEST(PageFormatTest, CodesAreCentred) {
  const AttentionShape shape = {1, 1, 256};
  Block block = NormalBlock(shape);
  std::vector<float> out(kPageTokens * 256);
  for (Width width : {Width::kInt2, Width::kInt4}) {
    Page page(KeyPageBytes(shape, width));
    SealKeys(BestTarget(), shape, width, block.View(), page.data.get());
    UnsealKeys(shape, {page.data.get(), width}, out.data());
    double sum = 0;
    for (int i = 0; i < kPageTokens * 256; ++i) sum += out[i] - ToFloat(block.at(0, i / 256, i % 256));
    const double step = 5.0 / ((1 << Bits(width)) - 1);  // 64 normal numbers span about 5 deviations
    EXPECT_LT(std::abs(sum / (kPageTokens * 256)), 0.02 * step) << Name(width);
  }
}

TEST(PageFormatTest, InfiniteAndNanRangesReadAsNan) {
  const AttentionShape shape = {1, 1, 64};
  Block block = NormalBlock(shape);
  block.at(0, 7, 9) = ToHalf(std::numeric_limits<float>::infinity());
  std::vector<float> out(64 * 64);
  Page page(KeyPageBytes(shape, Width::kInt4));
  SealKeys(BestTarget(), shape, Width::kInt4, block.View(), page.data.get());
  UnsealKeys(shape, {page.data.get(), Width::kInt4}, out.data());
  for (int i = 0; i < 64 * 64; ++i) EXPECT_EQ(std::isnan(out[i]), i % 64 == 9);
  SealValues(BestTarget(), shape, Width::kInt4, block.View(), page.data.get());
  UnsealValues(shape, {page.data.get(), Width::kInt4}, out.data());
  for (int i = 0; i < 64 * 64; ++i) EXPECT_EQ(std::isnan(out[i]), i / 64 == 7);
}

}  // namespace
}  // namespace stria
