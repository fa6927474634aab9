#include "kernels/format/stage_kernel.h"

#include <cstring>
#include <utility>

#include "kernels/format/page_layout.h"

namespace stria::STRIA_SIMD {
namespace {

void CopySlices(const AttentionShape& shape, const void* page, Half* block, ptrdiff_t head_stride) {
  const size_t slice = sizeof(Half) * kPageTokens * shape.head_dim;
  for (int h = 0; h < shape.kv_heads; ++h)
    std::memcpy(block + h * head_stride, static_cast<const char*>(page) + h * slice, slice);
}

// The operations of Quantizer::Value, in its order.
F ValueOf(F code, F scale, F middle, float centre) { return middle + scale * (code - Set(centre)); }

// Tokens are lanes of the code matrix, channels its inner index: a token's codes are the words in one column,
// four channels in each place of a word.
template <int bits>
void StageKeySlice(const uint8_t* slice, int dim, Half* out) {
  constexpr int kPlaces = 8 / bits;
  constexpr uint32_t kMask = 0x01010101u * ((1u << bits) - 1);
  const int rows = dim / 4 / kPlaces;
  const Half* scales = reinterpret_cast<const Half*>(slice);
  const uint8_t* codes = slice + 4 * dim;
  for (int t = 0; t < kPageTokens; ++t) {
    uint8_t bytes[kMaxHeadDim];
    const uint8_t* from = codes + (t / kRowLanes * rows * kRowLanes + t % kRowLanes) * 4;
    for (int row = 0; row < rows; ++row) {
      uint32_t word;
      std::memcpy(&word, from + row * kRowLanes * 4, sizeof word);
      for (int place = 0; place < kPlaces; ++place) {
        const uint32_t four = word >> (place * bits) & kMask;
        std::memcpy(bytes + (row * kPlaces + place) * 4, &four, sizeof four);
      }
    }
    float numbers[kMaxHeadDim];
    for (int c = 0; c < dim; ++c) numbers[c] = bytes[c];
    for (int c = 0; c < dim; c += kLanes)
      StoreHalf(out + t * dim + c, ValueOf(Load(numbers + c), LoadHalf(scales + c), LoadHalf(scales + dim + c),
                                           CodeCentre(bits)));
  }
}

// Channels are lanes, tokens the inner index: a word holds four tokens of a channel in each place. The code
// of the i-th is masked where it lies and scaled down by a power of two, which is exact; odd bytes are first
// moved to even ones, which keeps the sign bit out.
template <int bits, int i>
F CodeInPlace(I words) {
  constexpr int kShift = i / 4 * bits + (i % 4 / 2) * 16;
  if constexpr (i % 2 == 1) words = ShiftRight16<8>(words);
  return ToFloat(And(words, SetWord(((1 << bits) - 1) << kShift))) * Set(1.0f / static_cast<float>(1 << kShift));
}

template <int bits, int... i>
void StageRow(I words, const float* scales, const float* middles, int dim, Half* out,
              std::integer_sequence<int, i...>) {
  (StoreHalf(out + i * dim,
             ValueOf(CodeInPlace<bits, i>(words), Set(scales[i]), Set(middles[i]), CodeCentre(bits))),
   ...);
}

template <int bits>
void StageValueSlice(const uint8_t* slice, int dim, Half* out) {
  constexpr int kTokensPerRow = 4 * 8 / bits;
  constexpr int kRows = kPageTokens / kTokensPerRow;
  const uint8_t* codes = slice + 4 * kPageTokens;
  alignas(64) float scales[kPageTokens], middles[kPageTokens];
  for (int t = 0; t < kPageTokens; t += kLanes) {
    Store(scales + t, LoadHalf(reinterpret_cast<const Half*>(slice) + t));
    Store(middles + t, LoadHalf(reinterpret_cast<const Half*>(slice) + kPageTokens + t));
  }
  for (int c = 0; c < dim; c += kLanes) {
    const uint8_t* from = codes + (c / kRowLanes * kRows * kRowLanes + c % kRowLanes) * 4;
    for (int row = 0; row < kRows; ++row) {
      const int t = row * kTokensPerRow;
      StageRow<bits>(LoadBytes(from + row * kRowLanes * 4), scales + t, middles + t, dim, out + t * dim + c,
                     std::make_integer_sequence<int, kTokensPerRow>{});
    }
  }
}

}  // namespace

void StageKeys(const AttentionShape& shape, PageRef page, Half* block, ptrdiff_t head_stride) {
  if (page.width == Width::kFp16) return CopySlices(shape, page.data, block, head_stride);
  const int dim = shape.head_dim;
  for (int h = 0; h < shape.kv_heads; ++h) {
    const auto* slice = static_cast<const uint8_t*>(page.data) + h * KeySliceBytes(dim, page.width);
    Half* out = block + h * head_stride;
    if (page.width == Width::kInt2) StageKeySlice<2>(slice, dim, out);
    if (page.width == Width::kInt4) StageKeySlice<4>(slice, dim, out);
    if (page.width == Width::kInt8) StageKeySlice<8>(slice, dim, out);
  }
}

void StageValues(const AttentionShape& shape, PageRef page, Half* block, ptrdiff_t head_stride) {
  if (page.width == Width::kFp16) return CopySlices(shape, page.data, block, head_stride);
  const int dim = shape.head_dim;
  for (int h = 0; h < shape.kv_heads; ++h) {
    const auto* slice = static_cast<const uint8_t*>(page.data) + h * ValueSliceBytes(dim, page.width);
    Half* out = block + h * head_stride;
    if (page.width == Width::kInt2) StageValueSlice<2>(slice, dim, out);
    if (page.width == Width::kInt4) StageValueSlice<4>(slice, dim, out);
    if (page.width == Width::kInt8) StageValueSlice<8>(slice, dim, out);
  }
}

}  // namespace stria::STRIA_SIMD
