#include "kernels/format/seal_reference.h"

#include <algorithm>
#include <cstring>

#include "kernels/format/quantizer.h"
#include "kernels/format/seal.h"

namespace stria {
namespace {

// Quantises `n` ranges of `length` numbers; at(i, j) is number j of range i, put(i, j, code) stores its code.
template <class At, class Put>
void QuantizeRanges(int bits, int n, int length, At at, Put put, Half* scales, Half* middles) {
  for (int i = 0; i < n; ++i) {
    float min = std::numeric_limits<float>::infinity(), max = -min;
    bool finite = true;
    for (int j = 0; j < length; ++j) {
      const float x = at(i, j);
      finite &= std::isfinite(x);
      min = std::min(min, x);
      max = std::max(max, x);
    }
    const Quantizer quantizer = Quantizer::ForRange(min, max, finite, bits);
    scales[i] = quantizer.scale;
    middles[i] = quantizer.middle;
    for (int j = 0; j < length; ++j) put(i, j, quantizer.Code(at(i, j)));
  }
}

void CopyHalves(const AttentionShape& shape, KvBlock tokens, void* page) {
  const size_t slice = KeySliceBytes(shape.head_dim, Width::kFp16);
  for (int h = 0; h < shape.kv_heads; ++h) {
    std::memcpy(static_cast<char*>(page) + h * slice, tokens.data + h * tokens.head_stride, slice);
  }
}

// One head's slice as scales, middles and codes.
struct Slice {
  Half* scales;
  Half* middles;
  uint8_t* codes;
};
Slice SliceOf(const void* page, size_t offset, int ranges) {
  Half* scales = reinterpret_cast<Half*>(const_cast<char*>(static_cast<const char*>(page) + offset));
  return {scales, scales + ranges, reinterpret_cast<uint8_t*>(scales + 2 * ranges)};
}

}  // namespace

void SealKeysReference(const AttentionShape& shape, Width width, KvBlock tokens, void* page) {
  if (width == Width::kFp16) return CopyHalves(shape, tokens, page);
  const int dim = shape.head_dim;
  const CodeMatrix matrix = KeyCodes(dim, width);
  std::memset(page, 0, KeyPageBytes(shape, width));
  for (int h = 0; h < shape.kv_heads; ++h) {
    const Half* x = tokens.data + h * tokens.head_stride;
    const auto slice = SliceOf(page, h * KeySliceBytes(dim, width), dim);
    QuantizeRanges(
        Bits(width), dim, kPageTokens,
        [&](int channel, int token) { return ToFloat(x[token * dim + channel]); },
        [&](int channel, int token, int code) {
          slice.codes[matrix.ByteOf(token, channel)] |= static_cast<uint8_t>(code << matrix.ShiftOf(channel));
        },
        slice.scales, slice.middles);
  }
}

void SealValuesReference(const AttentionShape& shape, Width width, KvBlock tokens, void* page) {
  if (width == Width::kFp16) return CopyHalves(shape, tokens, page);
  const int dim = shape.head_dim;
  const CodeMatrix matrix = ValueCodes(dim, width);
  std::memset(page, 0, ValuePageBytes(shape, width));
  for (int h = 0; h < shape.kv_heads; ++h) {
    const Half* x = tokens.data + h * tokens.head_stride;
    const auto slice = SliceOf(page, h * ValueSliceBytes(dim, width), kPageTokens);
    QuantizeRanges(
        Bits(width), kPageTokens, dim,
        [&](int token, int channel) { return ToFloat(x[token * dim + channel]); },
        [&](int token, int channel, int code) {
          slice.codes[matrix.ByteOf(channel, token)] |= static_cast<uint8_t>(code << matrix.ShiftOf(token));
        },
        slice.scales, slice.middles);
  }
}

void UnsealKeys(const AttentionShape& shape, PageRef page, float* out) {
  const int dim = shape.head_dim;
  for (int h = 0; h < shape.kv_heads; ++h) {
    const auto slice = SliceOf(page.data, h * KeySliceBytes(dim, page.width), dim);
    float* x = out + h * kPageTokens * dim;
    if (page.width == Width::kFp16) {
      for (int i = 0; i < kPageTokens * dim; ++i) x[i] = ToFloat(slice.scales[i]);
      continue;
    }
    const CodeMatrix matrix = KeyCodes(dim, page.width);
    for (int channel = 0; channel < dim; ++channel) {
      const Quantizer q = {slice.scales[channel], slice.middles[channel], 0, CodeCentre(matrix.bits), 0};
      for (int t = 0; t < kPageTokens; ++t)
        x[t * dim + channel] = q.Value(matrix.Get(slice.codes, t, channel));
    }
  }
}

void UnsealValues(const AttentionShape& shape, PageRef page, float* out) {
  const int dim = shape.head_dim;
  for (int h = 0; h < shape.kv_heads; ++h) {
    const auto slice = SliceOf(page.data, h * ValueSliceBytes(dim, page.width), kPageTokens);
    float* x = out + h * kPageTokens * dim;
    if (page.width == Width::kFp16) {
      for (int i = 0; i < kPageTokens * dim; ++i) x[i] = ToFloat(slice.scales[i]);
      continue;
    }
    const CodeMatrix matrix = ValueCodes(dim, page.width);
    for (int t = 0; t < kPageTokens; ++t) {
      const Quantizer q = {slice.scales[t], slice.middles[t], 0, CodeCentre(matrix.bits), 0};
      for (int channel = 0; channel < dim; ++channel)
        x[t * dim + channel] = q.Value(matrix.Get(slice.codes, channel, t));
    }
  }
}

}  // namespace stria
