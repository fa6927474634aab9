// All that is known about one layer of one model (as one tensor-parallel rank sees it), as plain data: policies are functions
// over it, and the state file holds it as it is.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "controller/ema.h"
#include "proto/tiers.h"

namespace stria {

// The quantised widths, in the order in which readings and EMAs come.
inline constexpr std::array<Width, 3> kReadingWidths = {Width::kInt2, Width::kInt4, Width::kInt8};

// Position in kReadingWidths; its size for FP16.
inline size_t ReadingIndex(Width width) {
  return std::find(kReadingWidths.begin(), kReadingWidths.end(), width) - kReadingWidths.begin();
}

// The narrowest width from index `from` on that passes; FP16 if none.
template <typename Passes>
Width NarrowestWidth(size_t from, Passes passes) {
  for (size_t i = from; i < kReadingWidths.size(); ++i) {
    if (passes(i)) return kReadingWidths[i];
  }
  return Width::kFp16;
}

using SmoothedReadings = std::array<Ema, 3>;  // at kReadingWidths; all valid or none

struct LayerState {
  SmoothedReadings plain, latent;
  LayerTier tier;                    // what the policy wants
  bool decided = false;              // a reading has set the tier; until then FP16
  std::array<uint32_t, 3> stable{};  // firings in a row for which the width was safe to narrow to
  uint32_t above = 0;                // firings in a row for which the width in force was too narrow
  friend bool operator==(const LayerState&, const LayerState&) = default;
};

}  // namespace stria
