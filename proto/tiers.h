// Controller → worker: what each layer's next pages are stored at. Always the full state, never a delta.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/width.h"

namespace stria {

struct LayerTier {
  Width keys = Width::kFp16;    // of pages sealed from now on
  Width values = Width::kFp16;
  // Narrowest width with EMA ≤ 4·τ, for requests whose plan may be widened; INT2, which widens nothing, before the first reading.
  Width guard_plain = Width::kInt2;
  Width guard_latent = Width::kInt2;
  friend bool operator==(const LayerTier&, const LayerTier&) = default;
};

struct TierVector {
  uint64_t epoch = 0;  // 0: no controller was ever heard; every layer FP16
  std::string model;   // fingerprint
  std::vector<LayerTier> layers;
  double canary_rate = 1.0 / 64;  // share of decode steps that fire
  uint32_t reference_length = 4096;  // L0 of τ(L) = τ0·√(L/L0)
  bool frozen = false;            // the vector is held and the canary is off
  friend bool operator==(const TierVector&, const TierVector&) = default;
};

// Worker → controller on the tiers socket: sent on connect and every second; registers the worker and tells what it runs under.
struct TierHello {
  std::string worker;        // stable name
  uint64_t incarnation = 0;  // differs after every restart
  std::string model;         // fingerprint
  std::string model_name;
  uint32_t layers = 0;
  uint32_t rank = 0, ranks = 1;
  uint64_t epoch = 0;        // applied
  std::string http;          // where its own HTTP answers, "host:port"
};

// Worker → controller: this epoch is applied, between two steps.
struct TierAck {
  std::string worker;
  uint64_t incarnation = 0;
  uint64_t epoch = 0;
};

}  // namespace stria
