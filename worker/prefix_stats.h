// What the prefix cache did and holds.
#pragma once

#include <cstdint>

namespace stria {

struct PrefixCacheStats {
  uint64_t lookups = 0, hits = 0, hit_tokens = 0;  // prompts; those that shared pages; the tokens of these
  uint64_t evictions = 0;                          // entries, for want of memory
  uint64_t entries = 0, bytes = 0;                 // now; bytes of their pages, idle or not
};

}  // namespace stria
