// The case table of sealing and appending, for every way that does it. A test binary links the table (seal_cases.cc) and
// says which paths it has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/format/seal.h"

namespace stria {

struct SealPath {
  std::string name;
  // SealKeys or SealValues, and AppendToken.
  std::function<void(const AttentionShape& shape, Width width, KvBlock tokens, bool keys, void* page)> seal;
  std::function<void(const AttentionShape& shape, const float* k, const float* v, int slot, Half* key_block,
                     Half* value_block, ptrdiff_t head_stride)>
      append;
};

// Defined by each test binary.
const std::vector<SealPath>& SealPaths();

}  // namespace stria
