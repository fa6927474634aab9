// Admission: who runs next, where, and what is set aside for it.
#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "scheduler/scheduler.h"

namespace stria {
namespace {

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Demand Scheduler::DemandOf(const Sequence& sequence) const {
  const SequenceRequest& request = sequence.request;
  // Forced tokens are scored through decode steps, so a further attempt starts from the prompt again.
  const uint64_t delivered = request.forced.empty() ? sequence.ledger.size() : 0;
  const uint64_t left = request.max_new_tokens - delivered;
  return {.plan = &request.plan,
          .prompt_tokens = request.prompt.size() + delivered,
          .evicted_tokens = EvictedTokens(static_cast<uint32_t>(request.prompt.size()), request.plan.keep_tokens),
          .expected_tokens = sequence.length_given ? left : std::min<uint64_t>(left, options_.assumed_new_tokens),
          .max_new_tokens = left,
          .preemptions = sequence.preemptions,
          .prefix = sequence.prefix ? std::span(sequence.prefix->keys()) : std::span<const PrefixKey>()};
}

absl::StatusOr<std::vector<uint64_t>> Scheduler::Submit(std::vector<SequenceRequest> requests, MonotonicTime now) {
  if (!ready()) return absl::UnavailableError("no worker is ready");
  if (requests.size() > queue_.limit()) {
    return absl::InvalidArgumentError(absl::StrCat("the request asks for ", requests.size(),
                                                   " sequences at once, the queue holds ", queue_.limit()));
  }
  if (requests.empty()) return std::vector<uint64_t>();
  std::vector<Sequence> sequences;
  for (SequenceRequest& request : requests) {
    STRIA_CHECK(!request.prompt.empty());
    Sequence sequence;
    sequence.length_given = request.max_new_tokens > 0;
    if (!sequence.length_given) {
      request.max_new_tokens = LongestAnswer(fleet_, request.plan, request.prompt.size());
    }
    sequence.request = std::move(request);
    sequence.arrived = sequence.queued = now;
    if (absl::Status fits = CheckFits(fleet_, DemandOf(sequence)); !fits.ok()) return fits;
    sequences.push_back(std::move(sequence));
  }
  if (absl::Status room = queue_.HasRoom(sequences.front().request.tenant, sequences.size()); !room.ok()) return room;
  std::vector<uint64_t> ids;
  for (Sequence& sequence : sequences) {
    const SequenceRequest& request = sequence.request;
    // A worker shares nothing of a prompt of which it evicts tokens.
    if (request.share_prefix && DemandOf(sequence).evicted_tokens == 0) {
      sequence.prefix.emplace(/*fingerprint=*/"", request.plan, request.cache_salt);
      sequence.prefix->Append(request.prompt);
    }
    const uint64_t id = next_id_++;
    sequence.name.id = id;
    queue_.Add(id, request.priority, request.tenant, /*ahead=*/false);
    sequences_.emplace(id, std::move(sequence));
    ids.push_back(id);
  }
  Admit(now);
  return ids;
}

// In the queue's order. One that finds no room is promised a worker, which takes nobody behind it until it fits: large sequences
// are not starved by small ones, and other workers go on.
void Scheduler::Admit(MonotonicTime now) {
  fleet_.UpdateBreakers(now);
  fleet_.TakeBackPromises();
  std::set<uint64_t> passed;
  while (fleet_.accepts()) {
    const std::optional<uint64_t> id = queue_.First(passed);
    if (!id) return;
    Sequence& sequence = sequences_.at(*id);
    const Demand demand = DemandOf(sequence);
    if (const std::optional<Placement> placement = Place(fleet_, demand, affinity_)) {
      queue_.Remove(*id);
      if (last_admission_) {
        seconds_per_admission_ = 0.9 * seconds_per_admission_ + 0.1 * Seconds(now - *last_admission_);
      }
      last_admission_ = now;
      Start(sequence, *placement, now);
      continue;
    }
    passed.insert(*id);
    Worker* worker = Promise(fleet_, demand, sequence.promised);
    if (worker == nullptr) continue;  // no worker that is here could ever hold it
    worker->promised = true;
    sequence.promised = worker->hello.worker;
    queue_.MoveAhead(*id);
  }
}

void Scheduler::Start(Sequence& sequence, const Placement& placement, MonotonicTime now) {
  Worker* worker = fleet_.Find(placement.worker);
  STRIA_CHECK(worker != nullptr);
  worker->reserved += placement.reservation.cache;
  worker->reserved.AddBytes(placement.reservation.staging);
  worker->sequences += 1;
  worker->exclusive = placement.reservation.exclusive;
  sequence.worker = placement.worker;
  sequence.reservation = placement.reservation;
  sequence.state = Sequence::State::kRunning;
  sequence.heard = false;
  sequence.acked = sequence.ledger.size();
  sequence.sends = 0;
  sequence.last_output = now;
  if (sequence.prefix) affinity_.Remember(sequence.worker, sequence.prefix->keys());
  if (!sequence.has_run) {
    sequence.has_run = true;
    queue_.ChargePrompt(sequence.request.tenant, sequence.request.prompt.size());
    effects_.events.push_back({.id = sequence.name.id, .started = true});
  }
  SendStart(sequence, now);
}

void Scheduler::SendStart(Sequence& sequence, MonotonicTime now) {
  const SequenceRequest& request = sequence.request;
  StartSequence start;
  start.name = sequence.name;
  start.prompt = request.prompt;
  start.max_new_tokens = request.max_new_tokens;
  start.priority = request.priority;
  start.stop_tokens = request.stop_tokens;
  start.forced = request.forced;
  start.sampling = request.sampling;
  start.plan = request.plan;
  start.share_prefix = request.share_prefix;
  start.cache_salt = request.cache_salt;
  if (request.forced.empty()) {
    const std::vector<int32_t>& delivered = sequence.ledger.tokens();
    start.prompt.insert(start.prompt.end(), delivered.begin(), delivered.end());
    start.delivered = static_cast<uint32_t>(delivered.size());
  }
  Command(sequence.worker, std::move(start));
  sequence.sent = now;
  if (++sequence.sends > 1) ++counters_.resends;
}

// Sequences whose widths depend on the tiers take more, or less, than was set aside when they came.
void Scheduler::ReserveAgain(Worker& worker) {
  for (auto& [id, sequence] : sequences_) {
    const CachePlan& plan = sequence.request.plan;
    if (sequence.worker != worker.hello.worker || !(plan.follow_tiers || plan.widen)) continue;
    MemoryDemand cache = ReservationOn(worker, DemandOf(sequence)).cache;
    worker.reserved -= sequence.reservation.cache;
    worker.reserved += cache;
    sequence.reservation.cache = std::move(cache);
  }
}

void Scheduler::ReturnStaging(Worker& worker, Sequence& sequence) {
  MemoryDemand staging;
  staging.AddBytes(std::exchange(sequence.reservation.staging, 0));
  worker.reserved -= staging;
}

void Scheduler::LeaveWorker(Sequence& sequence) {
  if (Worker* worker = fleet_.Find(sequence.worker); worker != nullptr) {
    ReturnStaging(*worker, sequence);
    worker->reserved -= sequence.reservation.cache;
    worker->sequences -= 1;
    if (sequence.reservation.exclusive) worker->exclusive = false;
  }
  sequence.worker.clear();
}

uint32_t Scheduler::RetryAfterSeconds() const {
  const double seconds = std::ceil(seconds_per_admission_ * static_cast<double>(queue_.size()));
  return static_cast<uint32_t>(std::clamp(seconds, 1.0, 60.0));
}

}  // namespace stria
