// The worker's step loop: commands in, a pending tier vector between two steps, one turn of the engine, outputs and telemetry out.
// Without work it sleeps until a socket, a task or a timer wakes it. Everything here runs on one thread, which owns the sockets
// and calls the engine.
#pragma once

#include <atomic>
#include <functional>

#include "absl/status/status.h"
#include "base/clock.h"
#include "services/common/log.h"
#include "services/worker/loop_tasks.h"
#include "services/worker/sequence_link.h"
#include "services/worker/telemetry_link.h"
#include "services/worker/tier_link.h"
#include "services/worker/worker_metrics.h"
#include "worker/engine.h"

namespace stria {

class WorkerLoop {
 public:
  // What the loop runs; all outlive it. `wait` sleeps until a socket or the tasks' fd is readable, at most for the time given.
  struct Parts {
    Engine& engine;
    SequenceLink& sequences;
    TierLink& tiers;
    TelemetryLink& telemetry;
    LoopTasks& tasks;
    WorkerMetrics& metrics;
    const Clock& clock;
    const Logger& log;
    std::function<void(Duration)> wait;
  };
  explicit WorkerLoop(Parts parts) : parts_(std::move(parts)), last_round_(parts_.clock.Now()) {}

  // Until Drain, and then until the last sequence has ended and is acknowledged. After `drain_limit` those that still run are
  // handed over to other workers, for which the scheduler gets a few seconds.
  void Run(Duration drain_limit);
  // One round without sleeping; true when the engine had work.
  bool RunOnce();
  // On the loop's thread (post it): takes no more sequences, Run ends when those that run have ended.
  void Drain();
  // Liveness, on any thread: Unavailable when the loop has not come round for `limit`, as when a step hangs. It wakes once a second.
  absl::Status Health(Duration limit) const;

 private:
  Duration TimeToNextTick() const;
  bool Drained(Duration drain_limit);
  void LogNotes();

  Parts parts_;
  bool draining_ = false, handed_over_ = false;
  MonotonicTime drain_started_;
  std::atomic<MonotonicTime> last_round_;
};

}  // namespace stria
