#include "model/dense/simd_int8_kernel.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/dense/simd_int8_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace stria::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 512 products of at most 127 · 32,512 fit 31 bits: the sums of so many inputs are exact in int32.
constexpr int kPairsPerBlock = 256;

#if HWY_TARGET == HWY_SCALAR

template <int kRows>
void Block(const int16_t* x, int stride, const int8_t* w, int pairs, int32_t* sums) {
  std::memset(sums, 0, sizeof(int32_t) * kRows * kPanelOutputs);
  for (int j = 0; j < pairs; ++j) {
    for (int r = 0; r < kRows; ++r) {
      for (int o = 0; o < kPanelOutputs; ++o) {
        sums[r * kPanelOutputs + o] += x[r * stride + 2 * j] * w[(j * kPanelOutputs + o) * 2] +
                                       x[r * stride + 2 * j + 1] * w[(j * kPanelOutputs + o) * 2 + 1];
      }
    }
  }
}

#else

// sums [kRows, 16] of one block of pairs.
template <int kRows>
HWY_INLINE void Block(const int16_t* HWY_RESTRICT x, int stride, const int8_t* HWY_RESTRICT w, int pairs,
                      int32_t* HWY_RESTRICT sums) {
  const hn::CappedTag<int32_t, kPanelOutputs> d32;
  const hn::Repartition<int16_t, decltype(d32)> d16;
  const hn::Rebind<int8_t, decltype(d16)> d8;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d32));
  constexpr int kVectors = kPanelOutputs / kLanes;
  using V = hn::Vec<decltype(d32)>;
  V acc[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(d32);
  }
  V unused = hn::Zero(d32);  // the second accumulator of instruction sets that need one
  for (int j = 0; j < pairs; ++j) {
    hn::Vec<decltype(d16)> weights[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = hn::PromoteTo(d16, hn::LoadU(d8, w + (j * kPanelOutputs + v * kLanes) * 2));
    }
    for (int r = 0; r < kRows; ++r) {
      int32_t pair;
      std::memcpy(&pair, x + r * stride + 2 * j, sizeof(pair));
      const auto both = hn::BitCast(d16, hn::Set(d32, pair));
      for (int v = 0; v < kVectors; ++v) {
        acc[r][v] = hn::ReorderWidenMulAccumulate(d32, weights[v], both, acc[r][v], unused);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[r][v], d32, sums + r * kPanelOutputs + v * kLanes);
  }
}

#endif

template <int kRows>
void Tile(const PanelArgs& args, int panel, int row) {
  const int stride = 2 * args.pairs;
  const int16_t* x = args.x + static_cast<int64_t>(row) * stride;
  const int8_t* w = args.weights + static_cast<int64_t>(panel) * args.pairs * (2 * kPanelOutputs);
  // Doubles hold every sum exactly (below 2^53), and convert to float in one rounding.
  double totals[kRows * kPanelOutputs] = {};
  for (int begin = 0; begin < args.pairs; begin += kPairsPerBlock) {
    int32_t sums[kRows * kPanelOutputs];
    Block<kRows>(x + 2 * begin, stride, w + static_cast<int64_t>(begin) * (2 * kPanelOutputs),
                 std::min(kPairsPerBlock, args.pairs - begin), sums);
    for (int i = 0; i < kRows * kPanelOutputs; ++i) totals[i] += sums[i];
  }
  const int first = panel * kPanelOutputs;
  const int count = std::min(kPanelOutputs, args.out - first);
  for (int r = 0; r < kRows; ++r) {
    float* y = args.y + static_cast<int64_t>(row + r) * args.out + first;
    const float row_scale = args.row_scales[row + r];
    float scaled[kPanelOutputs];
    for (int o = 0; o < kPanelOutputs; ++o) {
      scaled[o] =
          static_cast<float>(totals[r * kPanelOutputs + o]) * (row_scale * args.channel_scales[first + o]);
    }
    std::memcpy(y, scaled, sizeof(float) * count);
  }
}

// The last `rows` ≤ kRows rows.
template <int kRows>
void Rest(const PanelArgs& args, int panel, int row, int rows) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      Tile<kRows>(args, panel, row);
    } else {
      Rest<kRows - 1>(args, panel, row, rows);
    }
  }
}

void RunPanelsImpl(const PanelArgs& args, int begin, int end) {
  // With more rows to 16 registers GCC spills sums to the stack.
  constexpr int kTileRows = hn::MaxLanes(hn::CappedTag<int32_t, kPanelOutputs>()) >= 16 ? 6 : 3;
  for (int panel = begin; panel < end; ++panel) {
    int row = 0;
    for (; row + kTileRows <= args.rows; row += kTileRows) Tile<kTileRows>(args, panel, row);
    Rest<kTileRows - 1>(args, panel, row, args.rows - row);
  }
}

}  // namespace stria::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stria {

HWY_EXPORT(RunPanelsImpl);

void RunPanels(const PanelArgs& args, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(RunPanelsImpl)(args, begin, end);
}

}  // namespace stria
#endif
