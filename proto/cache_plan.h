// What a request's cache holds (DESIGN §4): one action per layer, and how much of its prompt stays. Scheduler and worker
// reckon with the same arithmetic.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/width.h"

namespace stria {

struct LayerAction {
  enum class Kind : uint8_t { kPlain, kLatent, kInherit };
  Kind kind = Kind::kPlain;
  Width keys = Width::kFp16, values = Width::kFp16;  // kPlain
  uint32_t rank = 0;                                 // kLatent: d
  Width latent = Width::kFp16;                       // kLatent: b
  friend bool operator==(const LayerAction&, const LayerAction&) = default;
};

struct CachePlan {
  bool follow_tiers = true;         // `auto`: widths come from the tier vector, `layers` is empty
  std::vector<LayerAction> layers;  // otherwise one per layer
  uint32_t keep_tokens = 0;         // of the prompt, after eviction; 0: all
  bool widen = false;               // guarded: pages are sealed at the wider of `layers` and the tier vector's guard width

  // Whether a layer has a cache of its own; one that inherits reads its anchor's.
  bool Holds(size_t layer) const { return follow_tiers || layers[layer].kind != LayerAction::Kind::kInherit; }
  // The layer whose cache this one reads: itself, or the nearest earlier one that holds. The first layer holds.
  size_t Anchor(size_t layer) const {
    while (!Holds(layer)) --layer;
    return layer;
  }
  // One past the last layer that reads the cache of this one's anchor.
  size_t GroupEnd(size_t layer) const {
    if (follow_tiers) return layer + 1;
    do {
      ++layer;
    } while (layer < layers.size() && !Holds(layer));
    return layer;
  }

  friend bool operator==(const CachePlan&, const CachePlan&) = default;
};

// Eviction takes whole multiples of so many tokens and never the prompt's last so many, so that a cache index and its token's
// position agree mod 64: pages, tail and ring are as without it.
inline constexpr uint32_t kEvictionUnit = 64;

// Tokens that eviction takes from a prompt (delivered tokens of earlier attempts are no part of it): at least
// `keep_tokens` and the last 64 stay.
constexpr uint32_t EvictedTokens(uint32_t prompt_tokens, uint32_t keep_tokens) {
  if (keep_tokens == 0) return 0;
  const uint32_t stay = std::max(keep_tokens, kEvictionUnit);
  return prompt_tokens > stay ? (prompt_tokens - stay) / kEvictionUnit * kEvictionUnit : 0;
}

}  // namespace stria
