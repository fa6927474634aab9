#include "kernels/format/seal_kernel.h"

#include <cstring>
#include <utility>

#include "kernels/format/quantizer_simd.h"

namespace stria::STRIA_SIMD {
namespace {

constexpr int kMaxRanges = 256;  // head_dim, or 64 tokens
constexpr int kMaxWords = kMaxHeadDim / 4;
static_assert(kMaxWords % kLanes == 0);

// The quantisers of all ranges of a slice, as floats.
struct alignas(64) Quantizers {
  float middle[kMaxRanges];
  float inverse[kMaxRanges];
};

void CopySlices(const AttentionShape& shape, KvBlock tokens, void* page) {
  const size_t slice = sizeof(Half) * kPageTokens * shape.head_dim;
  for (int h = 0; h < shape.kv_heads; ++h) {
    std::memcpy(static_cast<char*>(page) + h * slice, tokens.data + h * tokens.head_stride, slice);
  }
}

// ---- Keys: a range is a channel, over the 64 tokens ----

template <int bits, int... place>
I OrPlaces(const F* words, std::integer_sequence<int, place...>) {
  I packed = SetWord(0);
  ((packed = Or(packed, ShiftLeft32<place * bits>(AsBits(words[place])))), ...);
  return packed;
}

// words [kLanes][kMaxWords]: four neighbouring channels' codes of each of kLanes tokens. Writes the words of these
// tokens in every row of their block of lanes.
template <int bits>
void PackTokens(const uint32_t (&words)[kLanes][kMaxWords], int dim, uint8_t* lanes) {
  constexpr int kPlaces = 8 / bits;
  for (int first = 0; first < dim / 4; first += kLanes) {
    F x[kLanes];  // of a word each, after it is transposed
    for (int t = 0; t < kLanes; ++t) x[t] = AsFloat(LoadBytes(words[t] + first));
    Transpose(x);
    const int count = dim / 4 - first < kLanes ? dim / 4 - first : kLanes;
    for (int word = 0; word < count; word += kPlaces) {
      const I row = OrPlaces<bits>(x + word, std::make_integer_sequence<int, kPlaces>{});
      StoreBytes(lanes + (first + word) / kPlaces * kRowLanes * 4, row);
    }
  }
}

template <int bits>
void SealKeySlice(const Half* x, int dim, uint8_t* slice) {
  const int rows = dim * bits / 32;
  Half* scales = reinterpret_cast<Half*>(slice);
  uint8_t* codes = slice + 4 * dim;
  Quantizers q;
  for (int first = 0; first < dim; first += 16) {
    RangeVector ranges[kRowVectors];
    ChannelRanges(x + first, kPageTokens, dim, ranges);
    for (int v = 0; v < kRowVectors; ++v) {
      const int c = first + v * kLanes;
      const auto quantizer = QuantizerVector::Make(ranges[v].min, ranges[v].max, ranges[v].bad, bits, scales + c,
                                                   scales + dim + c);
      Store(q.middle + c, quantizer.middle);
      Store(q.inverse + c, quantizer.inverse);
    }
  }
  alignas(64) uint32_t words[kLanes][kMaxWords] = {};
  for (int first = 0; first < kPageTokens; first += kLanes) {
    for (int t = 0; t < kLanes; ++t) {
      for (int c = 0; c < dim; c += 16) {
        I word[kRowVectors];
        for (int v = 0; v < kRowVectors; ++v) {
          const int at = c + v * kLanes;
          word[v] = CodeOf<bits>(LoadHalf(x + (first + t) * dim + at), Load(q.middle + at), Load(q.inverse + at));
        }
        StoreLowBytes<false>(words[t] + c / 4, word);
      }
    }
    PackTokens<bits>(words, dim, codes + (first / kRowLanes * rows * kRowLanes + first % kRowLanes) * 4);
  }
}

// ---- Values: a range is a token, over the channels of its head ----

template <int bits, int... i>
I PackFourTokensPerPlace(const Half* x, int dim, int channel, const Quantizers& q, int first_token,
                         std::integer_sequence<int, i...>) {
  I packed = SetWord(0);
  ((packed = Or(packed, ShiftLeft32<i % 4 * 8 + i / 4 * bits>(
                            CodeOf<bits>(LoadHalf(x + (first_token + i) * dim + channel),
                                         Set(q.middle[first_token + i]), Set(q.inverse[first_token + i]))))),
   ...);
  return packed;
}

template <int bits>
void SealValueSlice(const Half* x, int dim, uint8_t* slice) {
  constexpr int kTokensPerRow = 4 * 8 / bits;
  constexpr int kRows = kPageTokens / kTokensPerRow;
  Half* scales = reinterpret_cast<Half*>(slice);
  uint8_t* codes = slice + 4 * kPageTokens;
  alignas(64) float min[kPageTokens], max[kPageTokens], bad[kPageTokens];
  Quantizers q;
  for (int t = 0; t < kPageTokens; ++t) {
    RangeVector range;
    for (int c = 0; c < dim; c += kLanes) range.Include(LoadHalf(x + t * dim + c));
    min[t] = ReduceMin(range.min);
    max[t] = ReduceMax(range.max);
    bad[t] = ReduceAdd(range.bad);
  }
  for (int t = 0; t < kPageTokens; t += kLanes) {
    const auto quantizer = QuantizerVector::Make(Load(min + t), Load(max + t), Load(bad + t), bits,
                                                 scales + t, scales + kPageTokens + t);
    Store(q.middle + t, quantizer.middle);
    Store(q.inverse + t, quantizer.inverse);
  }
  for (int c = 0; c < dim; c += kLanes) {
    uint8_t* to = codes + (c / kRowLanes * kRows * kRowLanes + c % kRowLanes) * 4;
    for (int row = 0; row < kRows; ++row) {
      StoreBytes(to + row * kRowLanes * 4,
                 PackFourTokensPerPlace<bits>(x, dim, c, q, row * kTokensPerRow,
                                              std::make_integer_sequence<int, kTokensPerRow>{}));
    }
  }
}

}  // namespace

void SealKeys(const AttentionShape& shape, Width width, KvBlock tokens, void* page) {
  if (width == Width::kFp16) return CopySlices(shape, tokens, page);
  const int bits = static_cast<int>(width), dim = shape.head_dim;
  const size_t slice_bytes = size_t{4} * dim + size_t{8} * dim * bits;
  for (int h = 0; h < shape.kv_heads; ++h) {
    const Half* x = tokens.data + h * tokens.head_stride;
    uint8_t* slice = static_cast<uint8_t*>(page) + h * slice_bytes;
    if (bits == 2) SealKeySlice<2>(x, dim, slice);
    if (bits == 4) SealKeySlice<4>(x, dim, slice);
    if (bits == 8) SealKeySlice<8>(x, dim, slice);
  }
}

void SealValues(const AttentionShape& shape, Width width, KvBlock tokens, void* page) {
  if (width == Width::kFp16) return CopySlices(shape, tokens, page);
  const int bits = static_cast<int>(width), dim = shape.head_dim;
  const size_t slice_bytes = size_t{4} * kPageTokens + size_t{8} * dim * bits;
  for (int h = 0; h < shape.kv_heads; ++h) {
    const Half* x = tokens.data + h * tokens.head_stride;
    uint8_t* slice = static_cast<uint8_t*>(page) + h * slice_bytes;
    if (bits == 2) SealValueSlice<2>(x, dim, slice);
    if (bits == 4) SealValueSlice<4>(x, dim, slice);
    if (bits == 8) SealValueSlice<8>(x, dim, slice);
  }
}

void StoreHalves(const float* from, int count, Half* to) {
  for (int i = 0; i < count; i += kLanes) StoreHalf(to + i, Load(from + i));
}

}  // namespace stria::STRIA_SIMD
