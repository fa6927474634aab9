#include "scheduler/scheduler.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "scheduler/estimate.h"

namespace stria {
namespace {

constexpr uint32_t kCancelTries = 10;  // then a worker that shows no effect is taken to have none of the sequence
constexpr size_t kRememberedStrays = 4096;
constexpr size_t kRememberedRefusals = 64;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

Scheduler::Scheduler(SchedulerOptions options)
    : options_(options), fleet_(options.vocab), queue_(options.queue_limit) {}

uint32_t Scheduler::max_context() const {
  uint32_t longest = 0;
  for (const auto& [name, worker] : fleet_.workers()) longest = std::max(longest, worker.hello.max_context);
  return longest;
}

bool Scheduler::ready() const {
  return std::any_of(fleet_.workers().begin(), fleet_.workers().end(),
                     [](const auto& entry) { return !entry.second.status.draining; });
}

Demand Scheduler::DemandOf(const Sequence& sequence) const {
  const SequenceRequest& request = sequence.request;
  // Forced tokens are scored through decode steps, so a further attempt starts from the prompt again.
  const uint64_t delivered = request.forced.empty() ? sequence.ledger.size() : 0;
  const uint64_t left = request.max_new_tokens - delivered;
  return {.plan = &request.plan,
          .prompt_tokens = request.prompt.size() + delivered,
          .expected_tokens = sequence.length_given ? left : std::min<uint64_t>(left, options_.assumed_new_tokens),
          .max_new_tokens = left,
          .preemptions = sequence.preemptions};
}

absl::StatusOr<std::vector<uint64_t>> Scheduler::Submit(std::vector<SequenceRequest> requests, MonotonicTime now) {
  if (!ready()) return absl::UnavailableError("no worker is ready");
  if (requests.size() > queue_.limit()) {
    return absl::InvalidArgumentError(absl::StrCat("the request asks for ", requests.size(),
                                                   " sequences at once, the queue holds ", queue_.limit()));
  }
  std::vector<Sequence> sequences;
  for (SequenceRequest& request : requests) {
    STRIA_CHECK(!request.prompt.empty());
    Sequence sequence;
    sequence.length_given = request.max_new_tokens > 0;
    if (!sequence.length_given) {
      request.max_new_tokens = LongestAnswer(fleet_, request.plan, request.prompt.size());
    }
    sequence.request = std::move(request);
    sequence.queued = now;
    if (absl::Status fits = CheckFits(fleet_, DemandOf(sequence)); !fits.ok()) return fits;
    sequences.push_back(std::move(sequence));
  }
  if (!queue_.HasRoom(sequences.size())) {
    return absl::ResourceExhaustedError(absl::StrCat(queue_.size(), " sequences are waiting, the queue holds ",
                                                     queue_.limit(), "; try again later"));
  }
  std::vector<uint64_t> ids;
  for (Sequence& sequence : sequences) {
    const uint64_t id = next_id_++;
    sequence.name.id = id;
    queue_.Add(id, /*came_back=*/false);
    sequences_.emplace(id, std::move(sequence));
    ids.push_back(id);
  }
  Admit(now);
  return ids;
}

void Scheduler::Admit(MonotonicTime now) {
  while (const std::optional<uint64_t> head = queue_.Head()) {
    Sequence& sequence = sequences_.at(*head);
    const std::optional<Placement> placement = Place(fleet_, DemandOf(sequence));
    if (!placement) return;  // nobody overtakes: a large request is not starved by small ones
    queue_.Remove(*head);
    if (last_admission_) {
      seconds_per_admission_ = 0.9 * seconds_per_admission_ + 0.1 * Seconds(now - *last_admission_);
    }
    last_admission_ = now;
    Start(sequence, *placement, now);
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
  if (!sequence.has_run) {
    sequence.has_run = true;
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
  start.stop_tokens = request.stop_tokens;
  start.forced = request.forced;
  start.sampling = request.sampling;
  start.plan = request.plan;
  if (request.forced.empty()) {
    const std::vector<int32_t>& delivered = sequence.ledger.tokens();
    start.prompt.insert(start.prompt.end(), delivered.begin(), delivered.end());
    start.delivered = static_cast<uint32_t>(delivered.size());
  }
  Command(sequence.worker, std::move(start));
  sequence.sent = now;
  if (++sequence.sends > 1) ++counters_.resends;
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
    LoseWorker(hello.worker, "it was restarted");
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
  const bool new_tiers = worker->status.key_bits != status.key_bits || worker->status.value_bits != status.value_bits;
  worker->status = status;
  Fleet::Heard(*worker, now);
  if (new_tiers) ReserveAgain(*worker);
  if (status.scheduler != options_.incarnation && !greeted_lately) Greet(status.worker, now);
  // A worker that runs nothing and has sent nothing for long has dropped what we think it has.
  if (status.running + status.prefilling == 0) {
    for (auto it = sequences_.begin(); it != sequences_.end();) {
      const auto next = std::next(it);
      const Sequence& sequence = it->second;
      if (sequence.worker == status.worker && sequence.heard && now - sequence.last_output > options_.forgotten_after) {
        OnWorkerLost(it, "it no longer has the sequence");
      }
      it = next;
    }
  }
  Admit(now);  // its tiers may have narrowed
}

// Sequences that follow the tiers take more, or less, than was set aside when they came.
void Scheduler::ReserveAgain(Worker& worker) {
  for (auto& [id, sequence] : sequences_) {
    if (sequence.worker != worker.hello.worker || !sequence.request.plan.follow_tiers) continue;
    MemoryDemand cache = ReservationOn(worker, DemandOf(sequence)).cache;
    worker.reserved -= sequence.reservation.cache;
    worker.reserved += cache;
    sequence.reservation.cache = std::move(cache);
  }
}

void Scheduler::OnOutputs(StepOutputs outputs, MonotonicTime now) {
  Worker* worker = fleet_.Find(outputs.worker, outputs.incarnation);
  if (worker == nullptr) return;  // it says hello before its outputs count; they are sent again
  Fleet::Heard(*worker, now);
  for (SequenceOutput& output : outputs.outputs) TakeOutput(*worker, std::move(output), now);
  Admit(now);
}

void Scheduler::OnUnreachable(const std::string& name, MonotonicTime now) {
  Worker* worker = fleet_.Find(name);
  if (worker != nullptr && !worker->unreachable_since) worker->unreachable_since = now;
}

void Scheduler::TakeOutput(Worker& worker, SequenceOutput output, MonotonicTime now) {
  const auto it = sequences_.find(output.name.id);
  if (it == sequences_.end() || it->second.name != output.name || it->second.worker != worker.hello.worker) {
    TakeStray(worker.hello.worker, output, now);
    return;
  }
  Sequence& sequence = it->second;
  sequence.heard = true;
  sequence.last_output = now;
  SequenceOutput end;
  end.finish = output.finish;
  end.message = output.message;
  end.kv = output.kv;
  const size_t offered = output.tokens.size();
  TokenLedger::Accepted accepted = sequence.ledger.Accept(std::move(output));
  if (accepted.gap) {
    ++counters_.gaps;
    Command(sequence.worker, AckSequence{.name = sequence.name, .tokens = sequence.ledger.size()});
    return;
  }
  counters_.duplicates += offered - accepted.tokens.size();
  if (!accepted.tokens.empty()) ReturnStaging(worker, sequence);
  SequenceEvent event{.id = sequence.name.id};
  if (sequence.state == Sequence::State::kRunning) event.tokens = std::move(accepted.tokens);
  if (accepted.finished) {
    TakeEnd(it, end, std::move(event), now);
  } else if (!event.tokens.empty()) {
    effects_.events.push_back(std::move(event));
  }
}

void Scheduler::TakeStray(const std::string& worker, const SequenceOutput& output, MonotonicTime now) {
  if (output.finish != FinishReason::kNone) {
    strays_.erase(output.name);
    Command(worker, AckSequence{.name = output.name,
                                .tokens = output.first_index + static_cast<uint32_t>(output.tokens.size()),
                                .finished = true});
    return;
  }
  const auto [it, is_new] = strays_.try_emplace(output.name, now);
  if (!is_new && now - it->second < options_.resend_after) return;
  it->second = now;
  Command(worker, CancelSequence{output.name});
}

void Scheduler::TakeEnd(SequenceMap::iterator it, const SequenceOutput& end, SequenceEvent event, MonotonicTime now) {
  Sequence& sequence = it->second;
  Command(sequence.worker, AckSequence{.name = sequence.name, .tokens = sequence.ledger.size(), .finished = true});
  const bool was_alone = sequence.reservation.exclusive;
  const bool cancelled = sequence.state == Sequence::State::kCancelling;
  const std::string worker = sequence.worker;
  LeaveWorker(sequence);
  event.kv = end.kv;
  event.finish = end.finish;
  switch (end.finish) {
    case FinishReason::kPreempted:
      ++counters_.preemptions;
      if (cancelled) {
        event.finish = FinishReason::kCancelled;
      } else if (!was_alone) {
        if (!event.tokens.empty()) effects_.events.push_back(std::move(event));
        ++sequence.preemptions;
        WaitAgain(sequence, now);
        return;
      } else if (sequence.ledger.size() > 0) {
        event.finish = FinishReason::kLength;  // it had the whole pool: the pool is the limit of its context
      } else {
        event.status = absl::ResourceExhaustedError(
            absl::StrCat("the prompt of ", sequence.request.prompt.size(), " tokens filled the whole pool of worker ", worker));
      }
      break;
    case FinishReason::kError:
      event.status = absl::InternalError(absl::StrCat("worker ", worker, ": ", end.message));
      break;
    case FinishReason::kCancelled:
      if (!cancelled) event.status = absl::UnavailableError(absl::StrCat("worker ", worker, " gave the sequence up"));
      break;
    default: break;
  }
  End(it, std::move(event));
}

void Scheduler::WaitAgain(Sequence& sequence, MonotonicTime now) {
  sequence.queued = now;
  ++sequence.name.attempt;
  sequence.state = Sequence::State::kWaiting;
  queue_.Add(sequence.name.id, /*came_back=*/true);
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

void Scheduler::End(SequenceMap::iterator it, SequenceEvent event) {
  event.finished = true;
  effects_.events.push_back(std::move(event));
  sequences_.erase(it);
}

void Scheduler::LoseWorker(const std::string& name, std::string_view why) {
  ++counters_.workers_lost;
  effects_.notes.push_back(absl::StrCat("worker ", name, " is lost: ", View(why)));
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    const auto next = std::next(it);
    if (it->second.worker == name) OnWorkerLost(it, why);
    it = next;
  }
  fleet_.Remove(name);
}

void Scheduler::OnWorkerLost(SequenceMap::iterator it, std::string_view why) {
  Sequence& sequence = it->second;
  const bool cancelled = sequence.state == Sequence::State::kCancelling;
  const std::string worker = sequence.worker;
  LeaveWorker(sequence);
  SequenceEvent event{.id = sequence.name.id, .finish = FinishReason::kCancelled};
  if (!cancelled) event.status = absl::UnavailableError(absl::StrCat("worker ", worker, " was lost: ", View(why)));
  End(it, std::move(event));
}

void Scheduler::Tick(MonotonicTime now) {
  for (const auto& [name, why] : fleet_.Lost(now, options_.worker_timeout, options_.unreachable_timeout)) LoseWorker(name, why);
  for (const auto& [name, worker] : fleet_.workers()) {
    if (now - greeted_[name] >= options_.hello_every) Greet(name, now);
  }
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    const auto next = std::next(it);
    const Sequence& sequence = it->second;
    // What had been running was accepted and waits on, as long as there is somebody to wait for.
    if (sequence.state == Sequence::State::kWaiting && now - sequence.queued > options_.queue_timeout &&
        (!sequence.has_run || !ready())) {
      queue_.Remove(it->first);
      End(it, {.id = it->first,
               .status = absl::DeadlineExceededError(
                   absl::StrCat("waited ", Seconds(options_.queue_timeout), " s for room and found none"))});
    }
    it = next;
  }
  Resend(now);
  std::erase_if(greeted_, [&](const auto& entry) { return now - entry.second > 10 * options_.hello_every; });
  std::erase_if(strays_, [&](const auto& entry) {
    return strays_.size() > kRememberedStrays || now - entry.second > 10 * options_.resend_after;
  });
  Admit(now);
}

void Scheduler::Resend(MonotonicTime now) {
  const bool ack = !last_acks_ || now - *last_acks_ >= options_.ack_every;
  if (ack) last_acks_ = now;
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    const auto next = std::next(it);
    Sequence& sequence = it->second;
    const Duration patience = options_.resend_after * (1 << std::min(sequence.sends > 0 ? sequence.sends - 1 : 0, 3u));
    if (sequence.state == Sequence::State::kRunning) {
      if (!sequence.heard && now - sequence.sent >= patience) SendStart(sequence, now);
      if (ack && sequence.ledger.size() > sequence.acked) {
        sequence.acked = sequence.ledger.size();
        Command(sequence.worker, AckSequence{.name = sequence.name, .tokens = sequence.acked});
      }
    } else if (sequence.state == Sequence::State::kCancelling && now - sequence.sent >= patience) {
      if (sequence.sends >= kCancelTries) {
        LeaveWorker(sequence);
        End(it, {.id = it->first, .finish = FinishReason::kCancelled});
      } else {
        ++sequence.sends;
        ++counters_.resends;
        sequence.sent = now;
        Command(sequence.worker, CancelSequence{sequence.name});
      }
    }
    it = next;
  }
}

uint32_t Scheduler::RetryAfterSeconds() const {
  const double seconds = std::ceil(seconds_per_admission_ * static_cast<double>(queue_.size()));
  return static_cast<uint32_t>(std::clamp(seconds, 1.0, 60.0));
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = counters_;
  stats.waiting = queue_.size();
  stats.running = sequences_.size() - queue_.size();
  for (const auto& [name, worker] : fleet_.workers()) {
    stats.workers += worker.status.draining ? 0 : 1;
    stats.reserved_bytes += worker.reserved.Footprint();
    stats.pool_bytes += worker.hello.pool_bytes;
    stats.used_bytes += worker.status.used_bytes;
  }
  return stats;
}

}  // namespace stria
