// The case table on every instruction set that this machine has; and what a page means, worked out from the formula.
#include "kernels/format/seal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/format/page_layout.h"
#include "kernels/format/seal_cases.h"
#include "kernels/format/seal_reference.h"
#include "kernels/format/seal_test_data.h"

namespace stria {

const std::vector<SealPath>& SealPaths() {
  static const std::vector<SealPath> paths = [] {
    std::vector<SealPath> all;
    for (Target target : AvailableTargets()) {
      all.push_back({Name(target),
                     [=](const AttentionShape& shape, Width width, KvBlock tokens, bool keys, void* page) {
                       (keys ? SealKeys : SealValues)(target, shape, width, tokens, page);
                     },
                     [=](const auto&... token) { AppendToken(target, token...); }});
    }
    return all;
  }();
  return paths;
}

namespace {

using namespace seal_test;  // NOLINT: test data

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

// A staged page is what UnsealKeys and UnsealValues read, rounded, with gaps between heads left alone.
TEST(PageFormatTest, EveryTargetStagesTheReferencesNumbers) {
  for (const AttentionShape& shape : kShapes) {
    const Block block = NormalBlock(shape);
    const int dim = shape.head_dim;
    const ptrdiff_t stride = ptrdiff_t{1} * Block::kCapacity * dim;
    std::vector<float> expected(size_t{1} * shape.kv_heads * kPageTokens * dim);
    for (Width width : kAllWidths) {
      Page keys(KeyPageBytes(shape, width)), values(ValuePageBytes(shape, width));
      SealKeysReference(shape, width, block.View(), keys.data.get());
      SealValuesReference(shape, width, block.View(), values.data.get());
      for (Target target : AvailableTargets()) {
        for (const bool is_keys : {true, false}) {
          const PageRef page = {(is_keys ? keys : values).data.get(), width};
          std::vector<Half> staged(size_t{1} * shape.kv_heads * stride, Half{0xffff});
          (is_keys ? StageKeys : StageValues)(target, shape, page, staged.data(), stride);
          (is_keys ? UnsealKeys : UnsealValues)(shape, page, expected.data());
          for (int h = 0; h < shape.kv_heads; ++h) {
            for (int i = 0; i < stride; ++i) {
              const uint16_t bits =
                  i < kPageTokens * dim ? ToHalf(expected[h * kPageTokens * dim + i]).bits : 0xffff;
              ASSERT_EQ(staged[h * stride + i].bits, bits)
                  << Name(target) << " " << Name(width) << (is_keys ? " keys " : " values ") << h << " " << i;
            }
          }
        }
      }
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
