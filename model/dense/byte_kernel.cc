#include "model/dense/byte_kernel.h"

#include <algorithm>
#include <cstring>

#include "model/dense/quantize.h"

namespace stria::STRIA_SIMD {
namespace {

constexpr int kDigitPanels = 3;  // side by side: with four rows of two digits, as many sums as registers hold
constexpr int kDigitRows = 4;    // rows of a tile
constexpr int kGroupPanels = 2, kGroupRows = 6;  // fewer digits, but a float sum beside each integer one
constexpr int kStep = 64;        // bytes of a panel that one step reads: four inputs of 16 outputs
constexpr size_t kRowBlockBytes = size_t{256} << 10;  // activations that stay cached while all panels pass

// sums[r][v] += the products of one step.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void AddStep(const uint8_t* weights, size_t panel_bytes, const int8_t* x, int stride,
                                           I (&sums)[kRows][kVectors]) {
  I w[kVectors];
#pragma GCC unroll 3
  for (int v = 0; v < kVectors; ++v)
    w[v] = LoadBytes(weights + v / kRowVectors * panel_bytes + v % kRowVectors * 4 * kLanes);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const I four = Broadcast4(x + r * stride);
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sums[r][v] = DotBytes(sums[r][v], w[v], four);
  }
}

// Writes the outputs of a row's panels as far as there are any.
template <int kCount>
void StoreRow(const ByteArgs& a, int row, int panel, const float (&values)[kCount]) {
  const int first = panel * kBytePanelOutputs;
  std::memcpy(a.y + static_cast<ptrdiff_t>(row) * a.out + first, values,
              sizeof(float) * std::min(kCount, a.out - first));
}

// What is prefetched while a tile is worked on: panels' worth of memory from each of these places on.
template <int kTilePanels>
struct Ahead {
  const uint8_t* panels[kTilePanels];
  int count = 0;
};

// kTilePanels panels for kRows rows.
template <int kRows, int kTilePanels>
void DigitTile(const ByteArgs& a, int panel, int row, const Ahead<kTilePanels>& ahead) {
  constexpr int kVectors = kTilePanels * kRowVectors;
  const size_t panel_bytes = BytePanelBytes(a.in);
  const uint8_t* weights = a.weights + panel * panel_bytes;
  const int8_t* x = a.x + static_cast<ptrdiff_t>(2 * row) * a.in;
  I sums[2 * kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < 2 * kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sums[r][v] = SetWord(a.offsets[2 * row + r]);
  }
  for (int i = 0; i < a.in; i += 4) {
    for (int p = 0; p < ahead.count; ++p) Prefetch(ahead.panels[p] + i / 4 * kStep);
    AddStep<2 * kRows, kVectors>(weights + i / 4 * kStep, panel_bytes, x + i, a.in, sums);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    alignas(64) int32_t high[kVectors * kLanes], low[kVectors * kLanes];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      StoreBytes(high + v * kLanes, sums[2 * r][v]);
      StoreBytes(low + v * kLanes, sums[2 * r + 1][v]);
    }
    const float* scales = a.channel_scales + panel * kBytePanelOutputs;
    float values[kVectors * kLanes];
    for (int o = 0; o < kVectors * kLanes; ++o) values[o] = JoinDigits(high[o], low[o], a.x_scales[row + r] * scales[o]);
    StoreRow(a, row + r, panel, values);
  }
}

template <int kRows, int kTilePanels>
void GroupTile(const ByteArgs& a, int panel, int row) {
  constexpr int kVectors = kTilePanels * kRowVectors;
  const size_t panel_bytes = BytePanelBytes(a.in);
  const uint8_t* weights = a.weights + panel * panel_bytes;
  const int8_t* x = a.x + static_cast<ptrdiff_t>(row) * a.in;
  const int groups = a.in / kByteGroup;
  const float* scales = a.x_scales + static_cast<ptrdiff_t>(row) * groups;
  const int32_t* offsets = a.offsets + static_cast<ptrdiff_t>(row) * groups;
  F total[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) total[r][v] = Set(0.0f);
  }
  for (int group = 0; group < groups; ++group) {
    I sums[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sums[r][v] = SetWord(offsets[r * groups + group]);
    }
    for (int i = 0; i < kByteGroup; i += 4)
      AddStep<kRows, kVectors>(weights + i / 4 * kStep, panel_bytes, x + i, a.in, sums);
    weights += kByteGroup / 4 * kStep;
    x += kByteGroup;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F scale = Set(scales[r * groups + group]);
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) total[r][v] = Fma(ToFloat(sums[r][v]), scale, total[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    float values[kVectors * kLanes];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v)
      Store(values + v * kLanes, total[r][v] * Load(a.channel_scales + panel * kBytePanelOutputs + v * kLanes));
    StoreRow(a, row + r, panel, values);
  }
}

// tile(rows, first row) with a compile-time number of rows, for all rows of [begin, end).
template <int kMost, class Tile>
void ForRows(int begin, int end, Tile tile) {
  for (; begin + kMost <= end; begin += kMost) tile.template operator()<kMost>(begin);
  if constexpr (kMost > 1) {
    if (begin < end) ForRows<kMost - 1>(begin, end, tile);
  }
}

template <int kTilePanels>
void DigitPanels(const ByteArgs& a, int panel, int end) {
  // Each tile of rows prefetches its share of what comes next.
  const size_t panel_bytes = BytePanelBytes(a.in);
  const int tiles = (a.rows + kDigitRows - 1) / kDigitRows, share = (kTilePanels + tiles - 1) / tiles;
  int next = panel + kTilePanels;
  ForRows<kDigitRows>(0, a.rows, [&]<int kRows>(int row) {
    Ahead<kTilePanels> ahead;
    for (int i = 0; i < share && next < panel + 2 * kTilePanels; ++i, ++next) {
      const size_t beyond = next < end ? 0 : (next - end) * panel_bytes;
      if (next >= end && beyond + panel_bytes > a.next_bytes) break;
      ahead.panels[ahead.count++] = next < end ? a.weights + next * panel_bytes : a.next + beyond;
    }
    DigitTile<kRows, kTilePanels>(a, panel, row, ahead);
  });
}

}  // namespace

void RunByteDigits(const ByteArgs& a, int begin, int end) {
  int panel = begin;
  for (; panel + kDigitPanels <= end; panel += kDigitPanels) DigitPanels<kDigitPanels>(a, panel, end);
  for (; panel < end; ++panel) DigitPanels<1>(a, panel, end);
}

void RunByteGroups(const ByteArgs& a, int begin, int end) {
  const int block = std::max<int>(kGroupRows, kRowBlockBytes / a.in / kGroupRows * kGroupRows);
  for (int first = 0; first < a.rows; first += block) {
    const int last = std::min(a.rows, first + block);
    int panel = begin;
    for (; panel + kGroupPanels <= end; panel += kGroupPanels) {
      ForRows<kGroupRows>(first, last, [&]<int kRows>(int row) { GroupTile<kRows, kGroupPanels>(a, panel, row); });
    }
    for (; panel < end; ++panel)
      ForRows<kGroupRows>(first, last, [&]<int kRows>(int row) { GroupTile<kRows, 1>(a, panel, row); });
  }
}

void QuantizeGroups(const float* x, int in, int padded_in, int8_t* q, float* scales, int32_t* offsets) {
  static_assert(kByteInputs == 2 * kByteGroup);
  constexpr int kVectors = kByteGroup / kLanes;
  for (int begin = 0; begin < padded_in; begin += kByteInputs) {
    const float* from = x + begin;
    alignas(64) float padded[kByteInputs];
    if (begin + kByteInputs > in) {
      std::fill(std::copy(from, x + in, padded), padded + kByteInputs, 0.0f);
      from = padded;
    }
    F largest[2];
    for (int group = 0; group < 2; ++group) {
      largest[group] = Abs(Load(from + group * kByteGroup));
      for (int v = 1; v < kVectors; ++v)
        largest[group] = Max(Abs(Load(from + group * kByteGroup + v * kLanes)), largest[group]);
    }
    alignas(16) float max[4], sums[4];
    StoreMaxima4(max, largest[0], largest[1], largest[0], largest[1]);
    F sum[2];
    I rounded[2 * kVectors];
    for (int group = 0; group < 2; ++group) {
      const F inverse = Set(max[group] > 1e-30f ? 127.0f / max[group] : 0.0f);
      I whole = SetWord(0);
      for (int v = group * kVectors; v < (group + 1) * kVectors; ++v) {
        rounded[v] = Round(Load(from + v * kLanes) * inverse);
        whole = Add(whole, rounded[v]);
      }
      sum[group] = ToFloat(whole);
    }
    StoreSums4(sums, sum[0], sum[1], sum[0], sum[1]);
    for (int v = 0; v < 2 * kVectors; v += 4) {
      const I four[4] = {rounded[v], rounded[v + 1], rounded[v + 2], rounded[v + 3]};
      StoreBytes(q + begin + v * kLanes, PackBytes<true>(four));
    }
    for (int group = 0; group < 2; ++group) {
      scales[begin / kByteGroup + group] = max[group] * (1.0f / 127);
      offsets[begin / kByteGroup + group] = -128 * static_cast<int32_t>(sums[group]);
    }
  }
}

}  // namespace stria::STRIA_SIMD
