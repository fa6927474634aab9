// Query heads of one KV head share each load of its keys and values, as many as the registers hold sums for.
#pragma once

#include "kernels/simd/simd.h"

namespace stria::STRIA_SIMD {

// Calls fn<G>(first head) for runs of G ≤ most ≤ 4 heads, as even as possible.
template <int most, class Fn>
void ForHeads(int group, Fn fn) {
  const int parts = (group + most - 1) / most;
  int head = 0;
  for (int part = 0; part < parts; ++part) {
    const int heads = (group - head + parts - part - 1) / (parts - part);
    switch (heads) {
      case 1: fn.template operator()<1>(head); break;
      case 2: fn.template operator()<2>(head); break;
      case 3: fn.template operator()<3>(head); break;
      case 4:
        if constexpr (most >= 4) fn.template operator()<4>(head);
        break;
    }
    head += heads;
  }
}

}  // namespace stria::STRIA_SIMD
