// Tensor-parallel ranks see different heads of a layer, but all must store it at the same width.
#pragma once

#include <span>

#include "base/width.h"

namespace stria {

// The width that most ranks want; of equally many, the widest. FP16 for no votes.
inline Width MajorityWidth(std::span<const Width> votes) {
  Width best = Width::kFp16;
  int best_count = 0;
  for (const Width width : kAllWidths) {  // narrow to wide, so ≥ settles ties for the wider
    int count = 0;
    for (const Width vote : votes) count += vote == width;
    if (count > 0 && count >= best_count) best = width, best_count = count;
  }
  return best;
}

}  // namespace stria
