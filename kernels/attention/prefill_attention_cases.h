// The case table of prefill attention, for every way that computes it. A test binary links the table
// (prefill_attention_cases.cc) and says which paths it has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/attention/prefill_attention.h"

namespace stria {

using PrefillFunction = std::function<void(const AttentionShape& shape, const PrefillAttentionArgs& args)>;

struct PrefillPath {
  std::string name;
  double bound;  // error allowed, relative to the output
  PrefillFunction attend;
  std::vector<PrefillFunction> twins;  // the same work done otherwise, with the same bits
};

// Defined by each test binary.
const std::vector<PrefillPath>& PrefillPaths();

}  // namespace stria
