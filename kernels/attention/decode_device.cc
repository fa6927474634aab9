#include "kernels/attention/decode_device.h"

#include <algorithm>

#include "base/check.h"

namespace stria {
namespace {

// A block hides the latency of a page behind the work on the one before, so very short runs are not worth one; and a long
// sequence should still spread over a whole device.
int PagesPerUnit(int pages) {
  constexpr int kFewestPages = 4, kMostUnits = 64;
  return std::max(kFewestPages, (pages + kMostUnits - 1) / kMostUnits);
}

}  // namespace

DecodePlan PlanDecode(const AttentionShape& shape, std::span<const int> tokens) {
  STRIA_CHECK(shape.head_dim % 16 == 0 && shape.head_dim <= kMaxHeadDim && shape.heads % shape.kv_heads == 0);
  DecodePlan plan;
  const int group = shape.group();
  for (size_t sequence = 0; sequence < tokens.size(); ++sequence) {
    STRIA_CHECK(tokens[sequence] > 0);
    const int pages = (tokens[sequence] + kPageTokens - 1) / kPageTokens, step = PagesPerUnit(pages);
    for (int kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
      for (int head = 0; head < group; head += kTileHeads) {
        DecodeMerge merge = {static_cast<int>(plan.units.size()), 0};
        for (int page = 0; page < pages; page += step, ++merge.units) {
          plan.units.push_back({static_cast<int>(sequence), kv_head, kv_head * group + head,
                                std::min(kTileHeads, group - head), page, std::min(step, pages - page)});
        }
        plan.merges.push_back(merge);
      }
    }
  }
  return plan;
}

}  // namespace stria
