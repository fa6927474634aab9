#include "model/dense/simd_float_kernel.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/dense/simd_float_kernel.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace stria::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kWidth = kFloatPanelOutputs;

// Rows of x that stay in the second-level cache while all panels pass.
constexpr int kRowBlock = 96;

// Sums of kRows rows and kPanels panels side by side, so that enough chains are in flight to hide their
// latency.
template <int kRows, int kPanels>
HWY_INLINE void Tile(const FloatPanelArgs& args, int panel, int row) {
  const hn::CappedTag<float, kWidth> d;
  const hn::RebindToUnsigned<decltype(d)> d32;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectors = kPanels * kWidth / kLanes;
  const float* x = args.x + static_cast<int64_t>(row) * args.in;
  const int64_t panel_size = static_cast<int64_t>(args.in) * kWidth;
  const BFloat16* weights = args.weights + panel * panel_size;
  hn::Vec<decltype(d)> sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  for (int i = 0; i < args.in; ++i) {
    hn::Vec<decltype(d)> w[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const int output = v * kLanes;
      const BFloat16* from = weights + output / kWidth * panel_size + i * kWidth + output % kWidth;
      const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
      w[v] = hn::BitCast(d, hn::ShiftLeft<16>(bits));
    }
    for (int r = 0; r < kRows; ++r) {
      const auto value = hn::Set(d, x[static_cast<int64_t>(r) * args.in + i]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(value, w[v], sums[r][v]);
    }
  }
  const int first = panel * kWidth;
  const int count = std::min(kPanels * kWidth, args.out - first);
  for (int r = 0; r < kRows; ++r) {
    float of_row[kPanels * kWidth];
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, of_row + v * kLanes);
    std::memcpy(args.y + static_cast<int64_t>(row + r) * args.out + first, of_row, sizeof(float) * count);
  }
}

// One panel for the last `rows` ≤ kRows rows of a block.
template <int kRows>
void Rest(const FloatPanelArgs& args, int panel, int row, int rows) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      Tile<kRows, 1>(args, panel, row);
    } else {
      Rest<kRows - 1>(args, panel, row, rows);
    }
  }
}

void RunFloatPanelsImpl(const FloatPanelArgs& args, int begin, int end) {
  // As many rows as the registers hold sums for: 16 registers, or 32 twice as wide.
  constexpr int kTileRows = hn::MaxLanes(hn::CappedTag<float, kWidth>()) >= 16 ? 12 : 6;
  for (int block = 0; block < args.rows; block += kRowBlock) {
    const int block_end = std::min(args.rows, block + kRowBlock);
    int panel = begin;
    if (block_end - block == 1) {
      for (; panel + 4 <= end; panel += 4) Tile<1, 4>(args, panel, block);
      for (; panel < end; ++panel) Tile<1, 1>(args, panel, block);
    }
    for (; panel < end; ++panel) {
      int row = block;
      for (; row + kTileRows <= block_end; row += kTileRows) Tile<kTileRows, 1>(args, panel, row);
      Rest<kTileRows - 1>(args, panel, row, block_end - row);
    }
  }
}

}  // namespace stria::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stria {

HWY_EXPORT(RunFloatPanelsImpl);

void RunFloatPanels(const FloatPanelArgs& args, int begin, int end) {
  HWY_DYNAMIC_DISPATCH(RunFloatPanelsImpl)(args, begin, end);
}

}  // namespace stria
#endif
