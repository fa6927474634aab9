#include "scheduler/placement.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/estimate.h"

namespace stria {

Reservation ReservationOn(const Worker& worker, const Demand& demand) {
  const uint64_t pool = worker.hello.pool_bytes;
  if (demand.preemptions >= 2) return {.bytes = pool, .bytes_after = pool, .exclusive = true};
  const Footprint footprint =
      demand.preemptions == 0
          ? EstimateFootprint(worker.hello, WidthsOf(*demand.plan, worker.hello, worker.status), demand.prompt_tokens,
                              demand.expected_tokens)
          : EstimateFootprint(worker.hello,
                              demand.plan->follow_tiers ? WidestWidths(worker.hello)
                                                        : WidthsOf(*demand.plan, worker.hello, worker.status),
                              demand.prompt_tokens, demand.max_new_tokens);
  // More than the pool cannot be set aside: the sequence then has it all, and room for nobody else is left.
  return {.bytes = std::min(footprint.peak(), pool), .bytes_after = std::min(footprint.end, pool)};
}

std::optional<Placement> Place(const Fleet& fleet, const Demand& demand) {
  std::optional<Placement> best;
  uint64_t most_left = 0;
  for (const auto& [name, worker] : fleet.workers()) {
    if (!worker.accepts()) continue;
    if (demand.prompt_tokens + demand.max_new_tokens > worker.hello.max_context) continue;
    const Reservation reservation = ReservationOn(worker, demand);
    if (reservation.bytes > worker.free_bytes()) continue;
    if (reservation.exclusive && worker.sequences > 0) continue;
    const uint64_t left = worker.free_bytes() - reservation.bytes;
    if (!best || left > most_left) {
      best = Placement{.worker = name, .reservation = reservation};
      most_left = left;
    }
  }
  return best;
}

absl::Status CheckFits(const Fleet& fleet, const Demand& demand) {
  uint64_t longest = 0, smallest_need = 0, largest_pool = 0;
  for (const auto& [name, worker] : fleet.workers()) {
    longest = std::max<uint64_t>(longest, worker.hello.max_context);
    const Footprint footprint =
        EstimateFootprint(worker.hello, WidthsOf(*demand.plan, worker.hello, worker.status), demand.prompt_tokens,
                          demand.expected_tokens);
    const uint64_t need = footprint.peak();
    if (need <= worker.hello.pool_bytes &&
        demand.prompt_tokens + demand.max_new_tokens <= worker.hello.max_context) {
      return absl::OkStatus();
    }
    smallest_need = smallest_need == 0 ? need : std::min(smallest_need, need);
    largest_pool = std::max(largest_pool, worker.hello.pool_bytes);
  }
  if (demand.prompt_tokens + demand.max_new_tokens > longest) {
    return absl::InvalidArgumentError(absl::StrCat("this model's context is ", longest, " tokens, the request needs ",
                                                   demand.prompt_tokens + demand.max_new_tokens, " (",
                                                   demand.prompt_tokens, " in the prompt, ", demand.max_new_tokens,
                                                   " to generate)"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the request needs ", smallest_need, " bytes of cache for ", demand.prompt_tokens, " prompt tokens and ",
      demand.expected_tokens, " to generate, the largest worker has ", largest_pool, " bytes in all"));
}

}  // namespace stria
