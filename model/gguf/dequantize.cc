#include "model/gguf/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "base/float16.h"

namespace stria {
namespace {

constexpr int kSmallBlock = 32;   // elements of Q4_0, Q4_1, Q5_0, Q8_0
constexpr int kSuperBlock = 256;  // elements of the K types

template <typename T>
T Load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

float LoadHalf(const uint8_t* bytes) { return ToFloat(Half{Load<uint16_t>(bytes)}); }

void F16(const uint8_t* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = LoadHalf(in + 2 * i);
}

void BF16(const uint8_t* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = ToFloat(BFloat16{Load<uint16_t>(in + 2 * i)});
}

// Each function below expands one block. In the 32-element types the low nibbles are the first half, the high
// ones the second.

// half scale; 16 bytes of nibbles, biased by 8.
void Q4_0(const uint8_t* in, float* out) {
  const float scale = LoadHalf(in);
  const uint8_t* codes = in + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>((codes[i] & 15) - 8);
    out[i + 16] = scale * static_cast<float>((codes[i] >> 4) - 8);
  }
}

// half scale; half minimum; 16 bytes of nibbles.
void Q4_1(const uint8_t* in, float* out) {
  const float scale = LoadHalf(in), minimum = LoadHalf(in + 2);
  const uint8_t* codes = in + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(codes[i] & 15) + minimum;
    out[i + 16] = scale * static_cast<float>(codes[i] >> 4) + minimum;
  }
}

// half scale; 32 fifth bits; 16 bytes of nibbles; biased by 16.
void Q5_0(const uint8_t* in, float* out) {
  const float scale = LoadHalf(in);
  const uint32_t fifth = Load<uint32_t>(in + 2);
  const uint8_t* codes = in + 6;
  for (int i = 0; i < 16; ++i) {
    const int low = (codes[i] & 15) | static_cast<int>((fifth >> i) & 1) << 4;
    const int high = (codes[i] >> 4) | static_cast<int>((fifth >> (i + 16)) & 1) << 4;
    out[i] = scale * static_cast<float>(low - 16);
    out[i + 16] = scale * static_cast<float>(high - 16);
  }
}

// half scale; 32 signed bytes.
void Q8_0(const uint8_t* in, float* out) {
  const float scale = LoadHalf(in);
  for (int i = 0; i < kSmallBlock; ++i) out[i] = scale * static_cast<float>(static_cast<int8_t>(in[2 + i]));
}

// The eight 6-bit sub-scales and eight 6-bit sub-minima of Q4_K and Q5_K, in 12 bytes: those of groups 0 to 3
// are the low six bits of bytes 0-3 and 4-7; those of groups 4 to 7 have their low nibbles in bytes 8-11 and
// their top two bits in the top of bytes 0-7.
struct SubScales {
  uint8_t scale[8], minimum[8];

  explicit SubScales(const uint8_t* in) {
    for (int i = 0; i < 4; ++i) {
      scale[i] = in[i] & 63;
      minimum[i] = in[i + 4] & 63;
      scale[i + 4] = static_cast<uint8_t>((in[i + 8] & 15) | (in[i] >> 6) << 4);
      minimum[i + 4] = static_cast<uint8_t>((in[i + 8] >> 4) | (in[i + 4] >> 6) << 4);
    }
  }
};

// half scale; half minimum; sub-scales; 128 bytes of nibbles: each run of 32 bytes holds two groups, low
// nibbles first.
void Q4_K(const uint8_t* in, float* out) {
  const float scale = LoadHalf(in), minimum = LoadHalf(in + 2);
  const SubScales sub(in + 4);
  for (int group = 0; group < 8; ++group) {
    const uint8_t* codes = in + 16 + group / 2 * 32;
    const int shift = group % 2 * 4;
    const float step = scale * sub.scale[group], offset = minimum * sub.minimum[group];
    for (int i = 0; i < 32; ++i)
      out[group * 32 + i] = step * static_cast<float>((codes[i] >> shift) & 15) - offset;
  }
}

// As Q4_K with 32 bytes of fifth bits before the nibbles: bit g of byte i belongs to element i of group g.
void Q5_K(const uint8_t* in, float* out) {
  const float scale = LoadHalf(in), minimum = LoadHalf(in + 2);
  const SubScales sub(in + 4);
  const uint8_t* fifth = in + 16;
  for (int group = 0; group < 8; ++group) {
    const uint8_t* codes = in + 48 + group / 2 * 32;
    const int shift = group % 2 * 4;
    const float step = scale * sub.scale[group], offset = minimum * sub.minimum[group];
    for (int i = 0; i < 32; ++i) {
      const int code = ((codes[i] >> shift) & 15) | ((fifth[i] >> group) & 1) << 4;
      out[group * 32 + i] = step * static_cast<float>(code) - offset;
    }
  }
}

// 128 bytes of low nibbles; 64 bytes of top bit pairs; 16 signed sub-scales (one per 16 elements); half
// scale; biased by 32. Each half of the block has its own 64 + 32 bytes: its four runs of 32 elements take
// the low nibbles of the two runs of 32 bytes, then their high nibbles, and bit pairs 0 to 3 of the same 32
// bytes.
void Q6_K(const uint8_t* in, float* out) {
  const float scale = LoadHalf(in + 208);
  for (int run = 0; run < 8; ++run) {
    const int half = run / 4, quarter = run % 4;
    const uint8_t* low = in + half * 64 + quarter % 2 * 32;
    const uint8_t* top = in + 128 + half * 32;
    const int low_shift = quarter / 2 * 4, top_shift = quarter * 2;
    for (int part = 0; part < 2; ++part) {
      const float step = scale * static_cast<float>(static_cast<int8_t>(in[192 + run * 2 + part]));
      for (int i = part * 16; i < part * 16 + 16; ++i) {
        const int code = ((low[i] >> low_shift) & 15) | ((top[i] >> top_shift) & 3) << 4;
        out[run * 32 + i] = step * static_cast<float>(code - 32);
      }
    }
  }
}

template <int kElements, void (*Expand)(const uint8_t*, float*)>
void EachBlock(GgmlType type, const uint8_t* in, int64_t count, float* out) {
  const int bytes = LayoutOf(type).bytes;
  for (int64_t i = 0; i < count; i += kElements, in += bytes) Expand(in, out + i);
}

}  // namespace

void Dequantize(GgmlType type, const uint8_t* blocks, int64_t count, float* out) {
  STRIA_CHECK(count % LayoutOf(type).elements == 0);
  switch (type) {
    case GgmlType::kF32:
      if (count > 0) std::memcpy(out, blocks, static_cast<size_t>(count) * sizeof(float));
      return;
    case GgmlType::kF16: return F16(blocks, count, out);
    case GgmlType::kBF16: return BF16(blocks, count, out);
    case GgmlType::kQ4_0: return EachBlock<kSmallBlock, Q4_0>(type, blocks, count, out);
    case GgmlType::kQ4_1: return EachBlock<kSmallBlock, Q4_1>(type, blocks, count, out);
    case GgmlType::kQ5_0: return EachBlock<kSmallBlock, Q5_0>(type, blocks, count, out);
    case GgmlType::kQ8_0: return EachBlock<kSmallBlock, Q8_0>(type, blocks, count, out);
    case GgmlType::kQ4_K: return EachBlock<kSuperBlock, Q4_K>(type, blocks, count, out);
    case GgmlType::kQ5_K: return EachBlock<kSuperBlock, Q5_K>(type, blocks, count, out);
    case GgmlType::kQ6_K: return EachBlock<kSuperBlock, Q6_K>(type, blocks, count, out);
  }
  STRIA_CHECK(false);
}

}  // namespace stria
