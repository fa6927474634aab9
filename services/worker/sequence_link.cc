#include "services/worker/sequence_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace stria {
namespace {

constexpr int kCommandsPerTurn = 256;         // a flood of commands delays a step, it does not stop it
constexpr size_t kEntriesPerFrame = 100'000;  // tokens and their alternatives, 8 bytes each: far below the frame cap
constexpr size_t kEndedRemembered = 65'536;
// While the socket refuses, a backlog that grows is not encoded again at every step.
constexpr Duration kRetryAfter = std::chrono::milliseconds(20);

}  // namespace

SequenceLink::SequenceLink(WorkerHello hello, SequenceLinkOptions options, FrameChannel& channel, Engine& engine, const Clock& clock)
    : hello_(std::move(hello)), options_(options), channel_(channel), engine_(engine), clock_(clock) {
  last_heard_ = next_hello_ = next_status_ = clock_.Now();
}

void SequenceLink::TakeCommands() {
  for (int taken = 0; taken < kCommandsPerTurn; ++taken) {
    const std::optional<std::string> frame = channel_.Receive();
    if (!frame) return;
    absl::StatusOr<ToWorker> command = DecodeToWorker(*frame);
    if (!command.ok()) {
      if (++stats_.refused_frames == 1) note_ = absl::StrCat("refused a command: ", command.status().message());
      continue;
    }
    std::visit([this](const auto& of_kind) { Take(of_kind); }, *command);
    // The engine reports the ends of dropped sequences in its next turn, and a new scheduler may use the same names: let that
    // turn pass before its commands.
    if (std::exchange(scheduler_changed_, false)) return;
  }
}

void SequenceLink::Take(const SchedulerHello& hello) {
  last_heard_ = clock_.Now();
  if (hello.incarnation == scheduler_) return;
  if (scheduler_ != 0) DropAll("the scheduler restarted");
  scheduler_ = hello.incarnation;
  scheduler_changed_ = true;
  next_hello_ = clock_.Now();  // it may not know this worker yet
}

void SequenceLink::Take(const StartSequence& start) {
  if (scheduler_ == 0) return;  // whose names these are is not known yet; they come again
  if (records_.contains(start.name) || ended_.contains(start.name)) {
    ++stats_.duplicates;
    return;
  }
  // Attempts of one sequence lie side by side in the map. Only the newest is wanted.
  auto it = records_.lower_bound({start.name.id, 0});
  while (it != records_.end() && it->first.id == start.name.id) {
    if (it->first.attempt > start.name.attempt) {
      ++stats_.duplicates;
      return;
    }
    engine_.Cancel(it->first);
    Forget(it++);
  }
  ++stats_.starts;
  Record& record = records_[start.name];
  record.first = record.sent = start.delivered;
  if (draining_) return End(start.name, FinishReason::kMoved, "");
  const absl::Status status = engine_.Start(start);
  if (!status.ok()) End(start.name, FinishReason::kError, std::string(status.message()));
}

void SequenceLink::Take(const CancelSequence& cancel) {
  if (scheduler_ == 0) return;
  const auto it = records_.find(cancel.name);
  if (ended_.contains(cancel.name) || (it != records_.end() && it->second.finish != FinishReason::kNone)) {
    ++stats_.duplicates;
    return;
  }
  ++stats_.cancels;
  if (it != records_.end()) {
    engine_.Cancel(cancel.name);  // whose next turn reports the end, with what the cache held
    return;
  }
  // Its Start was lost or is still under way: the answer also keeps that from starting.
  records_[cancel.name];
  End(cancel.name, FinishReason::kCancelled, "");
}

void SequenceLink::Take(const AckSequence& ack) {
  const auto it = records_.find(ack.name);
  if (it == records_.end()) {
    ++stats_.duplicates;
    return;
  }
  Record& record = it->second;
  ++stats_.acks;
  if (ack.finished && record.finish != FinishReason::kNone) return Forget(it);
  const uint32_t upto = std::min(ack.tokens, record.end());
  if (upto <= record.first) return;
  record.tokens.erase(record.tokens.begin(), record.tokens.begin() + (upto - record.first));
  record.first = upto;
  record.sent = std::max(record.sent, upto);
  record.waiting_since = clock_.Now();
}

void SequenceLink::End(const SequenceName& name, FinishReason reason, std::string message) {
  Record& record = records_[name];
  record.finish = reason;
  record.message = std::move(message);
  record.epoch = engine_.tiers().epoch;
}

void SequenceLink::Forget(RecordMap::iterator it) {
  if (ended_.insert(it->first).second) ended_order_.push_back(it->first);
  records_.erase(it);
  if (ended_order_.size() <= kEndedRemembered) return;
  ended_.erase(ended_order_.front());
  ended_order_.pop_front();
}

void SequenceLink::DropAll(const std::string& why) {
  for (const auto& [name, record] : records_) {
    engine_.Cancel(name);
    ++stats_.dropped_sequences;
  }
  if (!records_.empty()) note_ = absl::StrCat("dropped ", records_.size(), " sequences: ", why);
  records_.clear();
  ended_.clear();
  ended_order_.clear();
}

void SequenceLink::Publish(std::vector<SequenceOutput> outputs) {
  for (SequenceOutput& output : outputs) {
    const auto it = records_.find(output.name);
    if (it == records_.end() || it->second.finish != FinishReason::kNone) continue;  // dropped meanwhile
    Record& record = it->second;
    STRIA_CHECK(output.first_index == record.end());
    for (TokenOut& token : output.tokens) record.tokens.push_back(std::move(token));
    record.epoch = output.epoch;
    record.finish = output.finish;
    record.message = std::move(output.message);
    record.kv = output.kv;
  }
  Flush();
}

// What of one sequence still has to go, as far as the frame has room.
SequenceOutput SequenceLink::NextPart(const SequenceName& name, const Record& record, size_t* room) const {
  SequenceOutput part;
  part.name = name;
  part.first_index = record.sent;
  part.epoch = record.epoch;
  uint32_t index = record.sent;
  for (; index < record.end() && *room > 0; ++index) {
    const TokenOut& token = record.tokens[index - record.first];
    *room -= std::min(*room, 1 + token.top.size());
    part.tokens.push_back(token);
  }
  if (index == record.end() && record.finish != FinishReason::kNone) {
    part.finish = record.finish;
    part.message = record.message;
    part.kv = record.kv;
  }
  return part;
}

void SequenceLink::MarkSent(const StepOutputs& step) {
  for (const SequenceOutput& part : step.outputs) {
    Record& record = records_.at(part.name);
    if (!record.unacknowledged()) record.waiting_since = clock_.Now();
    record.sent = part.first_index + static_cast<uint32_t>(part.tokens.size());
    record.finish_sent = part.finish != FinishReason::kNone;
  }
}

void SequenceLink::Flush() {
  if (clock_.Now() < next_flush_) return;
  for (;;) {
    StepOutputs step;
    size_t room = kEntriesPerFrame;
    for (const auto& [name, record] : records_) {
      if (record.unsent() && room > 0) step.outputs.push_back(NextPart(name, record, &room));
    }
    if (step.outputs.empty()) return;
    step.worker = hello_.worker;
    step.incarnation = hello_.incarnation;
    if (!channel_.Send(Encode(step))) {  // kept for the next try
      next_flush_ = clock_.Now() + kRetryAfter;
      return;
    }
    MarkSent(step);
  }
}

void SequenceLink::SendStatus() {
  const EngineStats stats = engine_.stats();
  const TierVector& tiers = engine_.tiers();
  WorkerStatus status;
  status.worker = hello_.worker;
  status.incarnation = hello_.incarnation;
  status.scheduler = scheduler_;
  status.pool_bytes = stats.pool_bytes;
  status.used_bytes = stats.used_bytes;
  status.idle_bytes = stats.idle_bytes + stats.shadows.bytes;
  status.shared_bytes = stats.shared_bytes;
  status.staging_bytes = stats.staging_bytes;
  status.running = stats.running;
  status.prefilling = stats.prefilling;
  status.epoch = tiers.epoch;
  for (const LayerTier& tier : tiers.layers) {
    status.key_bits.push_back(static_cast<uint8_t>(Bits(tier.keys)));
    status.value_bits.push_back(static_cast<uint8_t>(Bits(tier.values)));
    status.guard_bits.push_back(static_cast<uint8_t>(Bits(tier.guard_plain)));
  }
  status.draining = draining_;
  channel_.Send(Encode(status));
}

void SequenceLink::Tick() {
  const MonotonicTime now = clock_.Now();
  if (scheduler_ != 0 && now - last_heard_ > options_.grace) {
    DropAll("the scheduler is silent");
    scheduler_ = 0;
  }
  if (now >= next_hello_) {
    channel_.Send(Encode(hello_));
    next_hello_ = now + options_.hello_every;
    next_status_ = now;
  }
  if (now >= next_status_) {
    SendStatus();
    next_status_ = now + options_.status_every;
  }
  stats_.unacknowledged_tokens = 0;
  for (auto& [name, record] : records_) {
    stats_.unacknowledged_tokens += record.tokens.size();
    if (!record.unacknowledged() || now - record.waiting_since < options_.resend_after) continue;
    record.sent = record.first;
    record.finish_sent = false;
    ++stats_.resends;
  }
  Flush();
}

MonotonicTime SequenceLink::next_tick() const { return records_.empty() ? next_hello_ : std::min(next_hello_, next_status_); }

void SequenceLink::Drain() {
  draining_ = true;
  next_status_ = clock_.Now();
}

void SequenceLink::HandOver() {
  for (const auto& [name, record] : records_) {
    if (record.finish != FinishReason::kNone) continue;
    engine_.Cancel(name);  // its report of that finds the end already here
    End(name, FinishReason::kMoved, "");
  }
  Flush();
}

std::string SequenceLink::TakeNote() { return std::exchange(note_, {}); }

}  // namespace stria
