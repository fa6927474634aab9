// Sealing and appending on a GPU: what a launch is told. Contracts: seal.h. Pages get the CPU's bytes.
#pragma once

#include "kernels/format/page_format.h"

namespace stria {

inline constexpr int kSealThreads = 128;

// One page. All pointers are the device's; tokens and page start at 16-byte boundaries.
struct SealJob {
  KvBlock tokens;
  void* page = nullptr;
  Width width = Width::kFp16;
  bool keys = false;  // else values
};

// One token of one sequence and layer.
struct AppendJob {
  const float* k = nullptr;  // [kv_heads, head_dim]
  const float* v = nullptr;
  Half* key_block = nullptr;
  Half* value_block = nullptr;
  ptrdiff_t head_stride = 0;
  int slot = 0;
};

}  // namespace stria
