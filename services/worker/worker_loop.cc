#include "services/worker/worker_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stria {
namespace {

constexpr Duration kHandOverLimit = std::chrono::seconds(5);

}  // namespace

bool WorkerLoop::RunOnce() {
  last_round_ = parts_.clock.Now();
  parts_.tasks.RunAll();
  parts_.sequences.TakeCommands();
  parts_.tiers.TakeAndApply();
  // Before the turn: acknowledgements that came during the last one have just been read, so only what is late is sent again.
  parts_.sequences.Tick();
  parts_.tiers.Tick();
  const bool work = parts_.engine.HasWork();
  if (work) {
    TurnResult turn = parts_.engine.Turn();
    parts_.sequences.Publish(std::move(turn.outputs));
    if (turn.canary) parts_.telemetry.Publish(*std::move(turn.canary));
    if (turn.quality) parts_.telemetry.Publish(*std::move(turn.quality));
  }
  parts_.metrics.AfterTurn(work);
  LogNotes();
  return work;
}

void WorkerLoop::Run(Duration drain_limit) {
  for (;;) {
    const bool work = RunOnce();
    if (draining_ && Drained(drain_limit)) return;
    if (!work) parts_.wait(TimeToNextTick());
  }
}

bool WorkerLoop::Drained(Duration drain_limit) {
  if (parts_.sequences.idle()) return true;
  const Duration elapsed = parts_.clock.Now() - drain_started_;
  if (elapsed >= drain_limit && !std::exchange(handed_over_, true)) {
    parts_.log.Info("drain limit reached: handing sequences over");
    parts_.sequences.HandOver();
  }
  if (elapsed < drain_limit + kHandOverLimit) return false;
  parts_.log.Warning("nobody acknowledged the sequences handed over");
  return true;
}

void WorkerLoop::Drain() {
  if (std::exchange(draining_, true)) return;
  drain_started_ = parts_.clock.Now();
  parts_.sequences.Drain();
  parts_.log.Info("draining");
}

absl::Status WorkerLoop::Health(Duration limit) const {
  const Duration silent = parts_.clock.Now() - last_round_.load();
  if (silent <= limit) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the step loop has not come round for ", std::chrono::duration_cast<std::chrono::seconds>(silent).count(), " s"));
}

Duration WorkerLoop::TimeToNextTick() const {
  const MonotonicTime next = std::min(parts_.sequences.next_tick(), parts_.tiers.next_tick());
  return std::max(Duration::zero(), next - parts_.clock.Now());
}

void WorkerLoop::LogNotes() {
  if (const std::string note = parts_.sequences.TakeNote(); !note.empty()) parts_.log.Warning(note);
  if (const std::string note = parts_.tiers.TakeNote(); !note.empty()) parts_.log.Info(note);
}

}  // namespace stria
