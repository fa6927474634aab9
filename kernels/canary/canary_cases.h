// The case table of the canary, for every way that reads it. A test binary links the table (canary_cases.cc) and says which
// paths it has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/canary/canary.h"

namespace stria {

struct CanaryPath {
  std::string name;
  std::function<void(const AttentionShape& shape, const Half* key_ring, int valid, const float* q, float* out)> read;
};

// Defined by each test binary.
const std::vector<CanaryPath>& CanaryPaths();

}  // namespace stria
