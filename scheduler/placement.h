// Where a sequence runs, and what is set aside for it there.
//
// A sequence that a worker preempted (its pages ran out) is set aside more the next time: first what its plan takes at the widths
// in force, then what it takes at FP16 in full length, then the worker is its own. So sequences that push each other out end up
// one after the other, and each of them ends: no livelock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "proto/prefix_chain.h"
#include "proto/sequences.h"
#include "scheduler/fleet.h"
#include "scheduler/prefix_affinity.h"

namespace stria {

struct Demand {
  const CachePlan* plan = nullptr;
  uint64_t prompt_tokens = 0;    // to prefill, tokens already delivered included
  uint64_t evicted_tokens = 0;   // of them, by the plan: never in the cache
  uint64_t expected_tokens = 0;  // to generate, as far as it is planned for; ≤ max_new_tokens
  uint64_t max_new_tokens = 0;   // to generate at most
  uint32_t preemptions = 0;
  std::span<const PrefixKey> prefix = {};  // of the prompt's full pages; empty: it shares none
};

struct Reservation {
  MemoryDemand cache;    // pages and rings at its end
  uint64_t staging = 0;  // beside them, until its first token has come
  bool exclusive = false;  // nothing else may run on the worker
};

Reservation ReservationOn(const Worker& worker, const Demand& demand);

struct Placement {
  std::string worker;
  Reservation reservation;
};

// Among those that accept and have room, what they hold unexplained counted, the worker that may have most of the prompt's prefix,
// unless it is much fuller than the emptiest: by more than a quarter of its pool. Where that leaves a choice, the one with the most free
// bytes after it; ties by name. A worker without sequences has room for whatever EverFits, even if its tiers have widened since it
// was let in.
std::optional<Placement> Place(const Fleet& fleet, const Demand& demand, const PrefixAffinity& affinity);

// Whether some worker that is here could hold the demand alone, at the narrowest widths that its plan may come to.
bool EverFits(const Fleet& fleet, const Demand& demand);

// The worker to keep for a sequence that found no room: one that could hold it alone, promised to nobody;
// `before` if that is still so, else the one with the most free bytes. nullptr: none.
Worker* Promise(Fleet& fleet, const Demand& demand, const std::string& before);

// InvalidArgument with the numbers when no worker's whole pool, or no worker's context, could ever hold the demand at the
// widths in force now.
absl::Status CheckFits(const Fleet& fleet, const Demand& demand);

// The most tokens that a sequence without a limit of its own may generate somewhere: by the context, and by what an empty pool
// holds whatever the tiers become. At least 1.
uint32_t LongestAnswer(const Fleet& fleet, const CachePlan& plan, uint64_t prompt_tokens);

}  // namespace stria
