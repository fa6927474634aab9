// What comes back: outputs by token index, ends, and sequences whose worker was lost or sent them away, which start again with the
// tokens already here.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "scheduler/scheduler.h"

namespace stria {
namespace {

constexpr uint32_t kCancelTries = 10;  // then a worker that shows no effect is taken to have none of the sequence

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

void Scheduler::OnOutputs(StepOutputs outputs, MonotonicTime now) {
  Worker* worker = fleet_.Find(outputs.worker, outputs.incarnation);
  if (worker == nullptr) return;  // it says hello before its outputs count; they are sent again
  Fleet::Heard(*worker, now);
  for (SequenceOutput& output : outputs.outputs) TakeOutput(*worker, std::move(output), now);
  Admit(now);
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
  queue_.ChargeGenerated(sequence.request.tenant, accepted.tokens.size());
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
  CircuitBreaker& breaker = fleet_.BreakerOf(worker);
  event.kv = end.kv;
  event.finish = end.finish;
  switch (end.finish) {
    case FinishReason::kMoved:
      if (!cancelled) {
        ++counters_.moves;
        return WaitAgain(sequence, std::move(event), now);
      }
      event.finish = FinishReason::kCancelled;
      break;
    case FinishReason::kPreempted:
      ++counters_.preemptions;
      if (cancelled) {
        event.finish = FinishReason::kCancelled;
      } else if (!was_alone) {
        ++sequence.preemptions;
        return WaitAgain(sequence, std::move(event), now);
      } else if (sequence.ledger.size() > 0) {
        event.finish = FinishReason::kLength;  // it had the whole pool: the pool is the limit of its context
      } else {
        event.status = absl::ResourceExhaustedError(
            absl::StrCat("the prompt of ", sequence.request.prompt.size(), " tokens filled the whole pool of worker ", worker));
      }
      break;
    case FinishReason::kError:
      event.status = absl::InternalError(absl::StrCat("worker ", worker, ": ", end.message));
      breaker.OnError(now);
      break;
    case FinishReason::kCancelled:
      if (!cancelled) event.status = absl::UnavailableError(absl::StrCat("worker ", worker, " gave the sequence up"));
      break;
    default:
      breaker.OnSuccess(now);
      if (sequence.prefix) {  // the next turn of a chat begins with this one and its answer
        sequence.prefix->Append(sequence.ledger.tokens());
        affinity_.Remember(worker, sequence.prefix->keys());
      }
  }
  End(it, std::move(event));
}

// What it has said goes to the owner; the next attempt goes on behind it.
void Scheduler::WaitAgain(Sequence& sequence, SequenceEvent event, MonotonicTime now) {
  if (!event.tokens.empty()) effects_.events.push_back({.id = event.id, .tokens = std::move(event.tokens)});
  sequence.queued = now;
  ++sequence.name.attempt;
  sequence.state = Sequence::State::kWaiting;
  queue_.Add(sequence.name.id, sequence.request.priority, sequence.request.tenant, /*ahead=*/true);
}

void Scheduler::LoseWorker(const std::string& name, std::string_view why, MonotonicTime now) {
  ++counters_.workers_lost;
  size_t moved = 0;
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    const auto next = std::next(it);
    if (it->second.worker == name) {
      ++moved;
      StartElsewhere(it, why, now);
    }
    it = next;
  }
  if (moved > 0) fleet_.BreakerOf(name).OnLost(now);
  effects_.notes.push_back(absl::StrCat("worker ", name, " is lost: ", View(why), "; it had ", moved, " sequences"));
  fleet_.Remove(name);
  affinity_.Forget(name);
}

void Scheduler::StartElsewhere(SequenceMap::iterator it, std::string_view why, MonotonicTime now) {
  Sequence& sequence = it->second;
  const bool cancelled = sequence.state == Sequence::State::kCancelling;
  const std::string worker = sequence.worker;
  LeaveWorker(sequence);
  if (cancelled) return End(it, {.id = it->first, .finish = FinishReason::kCancelled});
  if (++sequence.losses < options_.max_losses) {
    ++counters_.failovers;
    return WaitAgain(sequence, {.id = it->first}, now);
  }
  End(it, {.id = it->first,
           .status = absl::UnavailableError(absl::StrCat("worker ", worker, " was lost: ", View(why), "; ", sequence.losses,
                                                         " workers were lost while they ran this request"))});
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

}  // namespace stria
