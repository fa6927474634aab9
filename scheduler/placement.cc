#include "scheduler/placement.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/estimate.h"

namespace stria {
namespace {

constexpr uint64_t kMuchFullerShare = 4;  // of a pool: what a prefix is not worth

bool EverHolds(const Worker& worker, const Demand& demand) {
  return demand.prompt_tokens + demand.max_new_tokens <= worker.hello.max_context &&
         PeakFootprint(worker.hello, NarrowestWidthsOf(*demand.plan, worker.hello), demand.prompt_tokens, demand.max_new_tokens,
                       demand.evicted_tokens) <=
             worker.hello.pool_bytes;
}

}  // namespace

Reservation ReservationOn(const Worker& worker, const Demand& demand) {
  const bool first_try = demand.preemptions == 0;
  const std::vector<LayerWidths> widths = first_try ? WidthsOf(*demand.plan, worker.hello, worker.status)
                                                    : WidestWidthsOf(*demand.plan, worker.hello);
  const uint64_t tokens =
      TokensAtEnd(demand.prompt_tokens, first_try ? demand.expected_tokens : demand.max_new_tokens) - demand.evicted_tokens;
  return {.cache = CacheDemand(worker.hello, widths, tokens),
          .staging = StagingBytes(worker.hello, demand.prompt_tokens),
          .exclusive = demand.preemptions >= 2};
}

std::optional<Placement> Place(const Fleet& fleet, const Demand& demand, const PrefixAffinity& affinity) {
  struct Candidate {
    const Worker* worker;
    Reservation reservation;
    uint64_t left;
    size_t pages;
  };
  std::vector<Candidate> candidates;
  uint64_t most_left = 0;
  for (const auto& [name, worker] : fleet.workers()) {
    if (!worker.accepts() || !EverHolds(worker, demand)) continue;
    Reservation reservation = ReservationOn(worker, demand);
    uint64_t bytes = (worker.reserved + reservation.cache).Footprint() + reservation.staging + worker.unexplained_bytes;
    // Every reservation counts all pages; those that sequences share are held once.
    bytes -= std::min(bytes, worker.status.shared_bytes / kPoolSlabBytes * kPoolSlabBytes);
    if (worker.sequences > 0 && (reservation.exclusive || bytes > worker.hello.pool_bytes)) continue;
    const uint64_t left = worker.hello.pool_bytes - std::min(bytes, worker.hello.pool_bytes);
    most_left = std::max(most_left, left);
    candidates.push_back({&worker, std::move(reservation), left, affinity.PagesOn(name, demand.prefix)});
  }
  Candidate* best = nullptr;
  for (Candidate& candidate : candidates) {
    if (candidate.left + candidate.worker->hello.pool_bytes / kMuchFullerShare < most_left) continue;
    if (best == nullptr || std::pair(candidate.pages, candidate.left) > std::pair(best->pages, best->left)) best = &candidate;
  }
  if (best == nullptr) return std::nullopt;
  return Placement{.worker = best->worker->hello.worker, .reservation = std::move(best->reservation)};
}

bool EverFits(const Fleet& fleet, const Demand& demand) {
  return std::any_of(fleet.workers().begin(), fleet.workers().end(),
                     [&](const auto& entry) { return EverHolds(entry.second, demand); });
}

Worker* Promise(Fleet& fleet, const Demand& demand, const std::string& before) {
  Worker* best = nullptr;
  uint64_t most_left = 0;
  for (auto& [name, worker] : fleet.workers()) {
    if (worker.status.draining || worker.promised || worker.breaker == CircuitBreaker::State::kOpen) continue;
    if (!EverHolds(worker, demand)) continue;
    if (name == before) return &worker;
    const uint64_t left = worker.hello.pool_bytes - std::min(worker.reserved.Footprint(), worker.hello.pool_bytes);
    if (best != nullptr && left <= most_left) continue;
    best = &worker;
    most_left = left;
  }
  return best;
}

absl::Status CheckFits(const Fleet& fleet, const Demand& demand) {
  uint64_t longest = 0, smallest_need = UINT64_MAX, largest_pool = 0;
  const uint64_t tokens = demand.prompt_tokens + demand.max_new_tokens;
  for (const auto& [name, worker] : fleet.workers()) {
    longest = std::max<uint64_t>(longest, worker.hello.max_context);
    largest_pool = std::max(largest_pool, worker.hello.pool_bytes);
    const uint64_t need = PeakFootprint(worker.hello, WidthsOf(*demand.plan, worker.hello, worker.status),
                                        demand.prompt_tokens, demand.max_new_tokens, demand.evicted_tokens);
    smallest_need = std::min(smallest_need, need);
    if (need <= worker.hello.pool_bytes && tokens <= worker.hello.max_context) return absl::OkStatus();
  }
  if (tokens > longest) {
    return absl::InvalidArgumentError(absl::StrCat("this model's context is ", longest, " tokens, the request needs ",
                                                   tokens, " (", demand.prompt_tokens, " in the prompt, ",
                                                   demand.max_new_tokens, " to generate)"));
  }
  return absl::InvalidArgumentError(absl::StrCat("the request needs ", smallest_need, " bytes of cache (",
                                                 demand.prompt_tokens, " tokens in the prompt, ", demand.max_new_tokens,
                                                 " to generate), the largest worker has ", largest_pool,
                                                 " bytes in all"));
}

uint32_t LongestAnswer(const Fleet& fleet, const CachePlan& plan, uint64_t prompt_tokens) {
  const uint64_t evicted = EvictedTokens(static_cast<uint32_t>(prompt_tokens), plan.keep_tokens);
  uint32_t longest = 1;
  for (const auto& [name, worker] : fleet.workers()) {
    if (prompt_tokens >= worker.hello.max_context) continue;
    const std::vector<LayerWidths> widths = WidestWidthsOf(plan, worker.hello);
    uint32_t fits = 1, too_many = worker.hello.max_context - static_cast<uint32_t>(prompt_tokens) + 1;
    while (too_many - fits > 1) {  // PeakFootprint grows with the tokens
      const uint32_t middle = fits + (too_many - fits) / 2;
      (PeakFootprint(worker.hello, widths, prompt_tokens, middle, evicted) <= worker.hello.pool_bytes ? fits : too_many) = middle;
    }
    longest = std::max(longest, fits);
  }
  return longest;
}

}  // namespace stria
