// The case table of SnapKV's votes, for every way that counts them. A test binary links the table (snapkv_cases.cc) and says
// which paths it has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/evict/snapkv.h"

namespace stria {

// Adds the rows' votes to scores [kv_heads, scored].
using AddVotes = std::function<void(const AttentionShape& shape, const ObservationArgs& args, float* scores)>;

struct SnapKvPath {
  std::string name;
  AddVotes add;
  std::vector<AddVotes> twins;  // the same work done otherwise, with the same bits
};

// Defined by each test binary.
const std::vector<SnapKvPath>& SnapKvPaths();

}  // namespace stria
