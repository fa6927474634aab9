// The canary on a GPU: what a launch is told. Contract: canary.h.
#pragma once

#include "kernels/format/page_format.h"

namespace stria {

inline constexpr int kCanaryThreads = 128;

// One sequence in one layer: one block. All pointers are the device's.
struct CanaryJob {
  const Half* key_ring = nullptr;  // [kv_heads, 64, head_dim]
  int valid = 0;                   // keys, in slots [0, valid)
  const float* q = nullptr;        // [heads, head_dim]
  float* out = nullptr;            // [kCanaryWidths]
};

}  // namespace stria
