#include "scheduler/scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stria {
namespace {

constexpr size_t kRememberedStrays = 4096;
constexpr size_t kRememberedRefusals = 64;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Scheduler::Scheduler(SchedulerOptions options)
    : options_(options), fleet_(options.vocab, options.model), queue_(options.queue_limit, options.tenant_queue_limit) {
  for (const auto& [tenant, share] : options_.shares) queue_.SetShare(tenant, share);
}

uint32_t Scheduler::max_context() const {
  uint32_t longest = 0;
  for (const auto& [name, worker] : fleet_.workers()) longest = std::max(longest, worker.hello.max_context);
  return longest;
}

bool Scheduler::ready() const {
  return std::any_of(fleet_.workers().begin(), fleet_.workers().end(),
                     [](const auto& entry) { return !entry.second.status.draining; });
}

void Scheduler::Cancel(uint64_t id, MonotonicTime now) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return;
  Sequence& sequence = it->second;
  switch (sequence.state) {
    case Sequence::State::kCancelling: return;
    case Sequence::State::kWaiting:
      queue_.Remove(id);
      End(it, {.id = id, .finish = FinishReason::kCancelled});
      Admit(now);  // it may have been the head
      return;
    case Sequence::State::kRunning:
      sequence.state = Sequence::State::kCancelling;
      sequence.sends = 1;
      sequence.sent = now;
      Command(sequence.worker, CancelSequence{sequence.name});
      return;
  }
}

void Scheduler::Greet(const std::string& worker, MonotonicTime now) {
  greeted_[worker] = now;
  Command(worker, SchedulerHello{.incarnation = options_.incarnation});
}

void Scheduler::OnHello(const WorkerHello& hello, MonotonicTime now) {
  if (absl::Status verdict = fleet_.Judge(hello); !verdict.ok()) {
    const std::string why(verdict.message());
    if (refused_.size() < kRememberedRefusals && refused_[hello.worker] != why) {
      refused_[hello.worker] = why;
      effects_.notes.push_back("refused " + why);
    }
    return;
  }
  const Worker* known = fleet_.Find(hello.worker);
  if (known != nullptr && known->hello.incarnation != hello.incarnation) {
    LoseWorker(hello.worker, "it was restarted", now);
  }
  const bool is_new = fleet_.Register(hello, now) != Fleet::Hello::kKnown;
  if (is_new) {
    effects_.notes.push_back(absl::StrCat("worker ", hello.worker, " is here: ", hello.model_name, ", pool of ",
                                          hello.pool_bytes, " bytes, context ", hello.max_context));
  }
  refused_.erase(hello.worker);
  const auto greeted = greeted_.find(hello.worker);
  if (is_new || greeted == greeted_.end() || now - greeted->second >= options_.hello_every) Greet(hello.worker, now);
  Admit(now);
}

void Scheduler::OnStatus(const WorkerStatus& status, MonotonicTime now) {
  Worker* worker = fleet_.Find(status.worker, status.incarnation);
  const auto greeted = greeted_.find(status.worker);
  const bool greeted_lately = greeted != greeted_.end() && now - greeted->second < options_.hello_every;
  if (worker == nullptr) {
    if (!greeted_lately) Greet(status.worker, now);
    return;
  }
  const bool new_tiers = worker->status.key_bits != status.key_bits || worker->status.value_bits != status.value_bits ||
                         worker->status.guard_bits != status.guard_bits;
  worker->status = status;
  Fleet::Heard(*worker, now);
  if (new_tiers) ReserveAgain(*worker);
  // Messages of a worker come in order, so what it counts in use is reserved here still, or was never.
  const uint64_t reserved = worker->reserved.Footprint();
  const uint64_t held = status.used_bytes + status.shared_bytes;
  worker->unexplained_bytes = held - std::min(held, reserved);
  if (status.scheduler != options_.incarnation && !greeted_lately) Greet(status.worker, now);
  // A worker that runs nothing and has sent nothing for long has dropped what we think it has.
  if (status.running + status.prefilling == 0) {
    bool forgot = false;
    for (auto it = sequences_.begin(); it != sequences_.end();) {
      const auto next = std::next(it);
      const Sequence& sequence = it->second;
      if (sequence.worker == status.worker && sequence.heard && now - sequence.last_output > options_.forgotten_after) {
        forgot = true;
        StartElsewhere(it, "it no longer has the sequence", now);
      }
      it = next;
    }
    if (forgot) fleet_.BreakerOf(status.worker).OnError(now);
  }
  Admit(now);  // its tiers may have narrowed
}

void Scheduler::OnUnreachable(const std::string& name, MonotonicTime now) {
  Worker* worker = fleet_.Find(name);
  if (worker != nullptr && !worker->unreachable_since) worker->unreachable_since = now;
}

void Scheduler::End(SequenceMap::iterator it, SequenceEvent event) {
  event.finished = true;
  if (!it->second.abandoned) effects_.events.push_back(std::move(event));
  sequences_.erase(it);
}

void Scheduler::Tick(MonotonicTime now) {
  for (const auto& [name, why] : fleet_.Lost(now, options_.worker_timeout, options_.unreachable_timeout)) LoseWorker(name, why, now);
  for (const auto& [name, worker] : fleet_.workers()) {
    if (now - greeted_[name] >= options_.hello_every) Greet(name, now);
  }
  EndOverdue(now);
  Resend(now);
  std::erase_if(greeted_, [&](const auto& entry) { return now - entry.second > 10 * options_.hello_every; });
  std::erase_if(strays_, [&](const auto& entry) {
    return strays_.size() > kRememberedStrays || now - entry.second > 10 * options_.resend_after;
  });
  Admit(now);
}

void Scheduler::EndOverdue(MonotonicTime now) {
  const auto or_default = [](Duration asked, Duration otherwise) { return asked > Duration::zero() ? asked : otherwise; };
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    const auto next = std::next(it);
    Sequence& sequence = it->second;
    const bool waiting = sequence.state == Sequence::State::kWaiting;
    const Duration deadline = or_default(sequence.request.deadline, options_.deadline);
    const Duration patience = or_default(sequence.request.queue_timeout, options_.queue_timeout);
    absl::Status status;
    if (deadline > Duration::zero() && now - sequence.arrived > deadline) {
      status = absl::DeadlineExceededError(absl::StrCat("not done ", Seconds(deadline), " s after it came, its deadline"));
    } else if (waiting && now - sequence.queued > patience &&
               // What had been running was accepted and waits on, as long as there is somebody to wait for.
               (!sequence.has_run || !ready() || !EverFits(fleet_, DemandOf(sequence)))) {
      status = absl::AbortedError(absl::StrCat("waited ", Seconds(patience), " s for room and found none"));
    }
    if (!status.ok()) Abandon(it, std::move(status), now);
    it = next;
  }
}

// Its owner hears the end now; a worker that has it is told, and its end is nobody's any more.
void Scheduler::Abandon(SequenceMap::iterator it, absl::Status status, MonotonicTime now) {
  Sequence& sequence = it->second;
  if (sequence.state == Sequence::State::kWaiting) {
    queue_.Remove(it->first);
    return End(it, {.id = it->first, .status = std::move(status)});
  }
  if (std::exchange(sequence.abandoned, true)) return;
  effects_.events.push_back({.id = it->first, .finished = true, .status = std::move(status)});
  Cancel(it->first, now);
}

double Scheduler::pressure() const {
  const SchedulerStats now = stats();
  if (now.waiting > 0 || now.pool_bytes == 0) return 1;
  return std::min(1.0, static_cast<double>(now.reserved_bytes) / static_cast<double>(now.pool_bytes));
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = counters_;
  stats.breaker_trips = fleet_.trips();
  stats.waiting = queue_.size();
  stats.running = sequences_.size() - queue_.size();
  for (const auto& [name, worker] : fleet_.workers()) {
    stats.workers += worker.status.draining ? 0 : 1;
    stats.held_back += worker.breaker == CircuitBreaker::State::kClosed ? 0 : 1;
    stats.reserved_bytes += worker.reserved.Footprint();
    stats.pool_bytes += worker.hello.pool_bytes;
    stats.used_bytes += worker.status.used_bytes;
  }
  return stats;
}

}  // namespace stria
