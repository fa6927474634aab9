// The scheduler's brain: requests come in, commands to workers and events to the requests' owners come out. Pure: no sockets, no
// threads, time is an argument; the same calls give the same effects. Effects pile up until TakeEffects.
//
// A sequence waits in the queue, runs on one worker, and ends exactly once. A worker that is lost or leaves loses none: its sequences
// start again elsewhere, with the tokens already here at their prompt's end, and token indices go on. Commands are sent again until the worker shows their
// effect, so a lost message delays and never loses; outputs are taken by token index, so a doubled one changes nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "proto/sequences.h"
#include "scheduler/fair_queue.h"
#include "scheduler/fleet.h"
#include "scheduler/placement.h"
#include "scheduler/prefix_affinity.h"
#include "scheduler/token_ledger.h"

namespace stria {

struct SchedulerOptions {
  uint64_t incarnation = 1;     // differs after every restart
  uint32_t vocab = 0;           // of the tokenizer; 0: any
  std::string model = {};       // fingerprint that workers must have; empty: any
  uint32_t queue_limit = 1024;         // sequences that wait
  uint32_t tenant_queue_limit = 1024;  // of one tenant
  std::map<std::string, double> shares = {};  // of tenants that do not have a share of 1
  Duration queue_timeout = std::chrono::seconds(60);  // until a sequence first runs, where the request names none
  Duration deadline{};                                // from arrival to end, where the request names none; 0: none
  // A worker is lost when it says nothing for so long, which a long step or a busy machine must not reach …
  Duration worker_timeout = std::chrono::seconds(20);
  Duration unreachable_timeout = std::chrono::seconds(2);  // … or has no connection for so long: a dead process has none at once
  Duration forgotten_after = std::chrono::seconds(10);  // without output from a worker that says it runs nothing
  Duration resend_after = std::chrono::seconds(1);    // doubles each time, up to eight times this
  Duration ack_every = std::chrono::milliseconds(200);
  Duration hello_every = std::chrono::seconds(1);
  uint32_t max_losses = 3;  // lost workers after which a sequence is given up: it may be what kills them
  uint32_t assumed_new_tokens = 1024;  // planned for where the client gave no limit
};

struct SequenceRequest {
  std::vector<int32_t> prompt;
  uint32_t max_new_tokens = 0;  // 0: as many as context and pool hold
  std::vector<int32_t> stop_tokens;
  std::vector<int32_t> forced;  // teacher forcing
  SamplingParams sampling;
  CachePlan plan;
  std::string tenant;         // whose share of the service it takes
  int32_t priority = 0;       // lower numbers go first, and give their pages back last
  Duration queue_timeout{};   // 0: the scheduler's
  Duration deadline{};        // 0: the scheduler's
  bool share_prefix = true;   // as in StartSequence
  std::string cache_salt;
};

// What the owner of a sequence hears. `status` and `kv` count where `finished`; a failed sequence has a status that is not OK:
// Aborted when it waited too long for room, DeadlineExceeded at its deadline, Unavailable when it was given up after its workers
// were lost, ResourceExhausted when it filled a whole pool, Internal for a worker's error.
struct SequenceEvent {
  uint64_t id = 0;
  std::vector<TokenOut> tokens = {};
  bool started = false;  // a worker was given it, for the first time
  bool finished = false;
  FinishReason finish = FinishReason::kNone;  // kStop, kLength or kCancelled
  absl::Status status = {};
  KvUsage kv = {};
};

using WorkerCommand = std::variant<SchedulerHello, StartSequence, CancelSequence, AckSequence>;

struct Effects {
  std::vector<std::pair<std::string, WorkerCommand>> commands;  // to the named worker, in this order
  std::vector<SequenceEvent> events;
  std::vector<std::string> notes;  // for the log: workers that came, were lost, were refused
};

struct SchedulerStats {
  uint64_t waiting = 0, running = 0, workers = 0;
  uint64_t reserved_bytes = 0, pool_bytes = 0, used_bytes = 0;
  uint64_t held_back = 0;  // workers whose circuit breaker is open or on trial
  uint64_t preemptions = 0, resends = 0, duplicates = 0, gaps = 0, workers_lost = 0;
  uint64_t failovers = 0;  // sequences that a lost worker had and that were started again
  uint64_t moves = 0;      // sequences that a leaving worker handed over
  uint64_t breaker_trips = 0;
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);

  // Takes all of a request's sequences or none; ids in the same order.
  // InvalidArgument: can never fit (text with the numbers). ResourceExhausted: the queue is full, in all or for the first one's
  // tenant. Unavailable: no worker is there.
  absl::StatusOr<std::vector<uint64_t>> Submit(std::vector<SequenceRequest> requests, MonotonicTime now);

  // The owner wants no more tokens. The sequence's event `finished` still comes, when the worker has let go of it (at once if it
  // waited). Unknown ids are fine.
  void Cancel(uint64_t id, MonotonicTime now);

  // What workers say. A hello is answered by a SchedulerHello; a worker heard before its hello is asked for it in the same way.
  void OnHello(const WorkerHello& hello, MonotonicTime now);
  void OnStatus(const WorkerStatus& status, MonotonicTime now);
  void OnOutputs(StepOutputs outputs, MonotonicTime now);
  // A command could not be sent because the worker has no connection.
  void OnUnreachable(const std::string& worker, MonotonicTime now);

  // Timeouts, resends, acknowledgements, hellos, admissions. Several times a second.
  void Tick(MonotonicTime now);

  Effects TakeEffects() { return std::exchange(effects_, {}); }

  // How long a refused client should wait: the queue's length at the pace of late.
  uint32_t RetryAfterSeconds() const;

  // Tokens of the longest sequence that some worker takes; 0 without workers.
  uint32_t max_context() const;
  // How short memory is, 0 to 1: the share of all pools that is reserved; 1 while sequences wait.
  double pressure() const;
  bool ready() const;
  const Fleet& fleet() const { return fleet_; }
  SchedulerStats stats() const;

 private:
  struct Sequence {
    enum class State { kWaiting, kRunning, kCancelling };
    SequenceRequest request;
    SequenceName name;
    State state = State::kWaiting;
    TokenLedger ledger;
    std::optional<PrefixChain> prefix;  // of the prompt; absent: it shares nothing
    MonotonicTime arrived;
    uint32_t preemptions = 0, losses = 0;
    bool has_run = false;
    bool length_given = false;  // by the client
    bool abandoned = false;     // its owner was told of its end

    // While a worker has it.
    std::string worker;
    Reservation reservation;
    bool heard = false;         // the worker showed that it knows this attempt
    uint32_t acked = 0;
    MonotonicTime sent;         // the last Start or Cancel
    uint32_t sends = 0;
    MonotonicTime last_output;
    MonotonicTime queued;
    std::string promised;       // while it waits: the worker that is kept for it
  };
  using SequenceMap = std::map<uint64_t, Sequence>;

  Demand DemandOf(const Sequence& sequence) const;
  void Admit(MonotonicTime now);
  void ReserveAgain(Worker& worker);
  void Start(Sequence& sequence, const Placement& placement, MonotonicTime now);
  void SendStart(Sequence& sequence, MonotonicTime now);
  void TakeOutput(Worker& worker, SequenceOutput output, MonotonicTime now);
  void TakeStray(const std::string& worker, const SequenceOutput& output, MonotonicTime now);
  void TakeEnd(SequenceMap::iterator it, const SequenceOutput& end, SequenceEvent event, MonotonicTime now);
  void WaitAgain(Sequence& sequence, SequenceEvent event, MonotonicTime now);
  void ReturnStaging(Worker& worker, Sequence& sequence);
  void LeaveWorker(Sequence& sequence);
  void End(SequenceMap::iterator it, SequenceEvent event);
  void LoseWorker(const std::string& name, std::string_view why, MonotonicTime now);
  void StartElsewhere(SequenceMap::iterator it, std::string_view why, MonotonicTime now);
  void EndOverdue(MonotonicTime now);
  void Abandon(SequenceMap::iterator it, absl::Status status, MonotonicTime now);
  void Resend(MonotonicTime now);
  void Greet(const std::string& worker, MonotonicTime now);
  void Command(const std::string& worker, WorkerCommand command) {
    effects_.commands.emplace_back(worker, std::move(command));
  }

  const SchedulerOptions options_;
  Fleet fleet_;
  PrefixAffinity affinity_;
  FairQueue queue_;
  SequenceMap sequences_;
  uint64_t next_id_ = 1;
  Effects effects_;
  std::map<std::string, MonotonicTime> greeted_;             // when each worker was last sent a hello
  std::map<SequenceName, MonotonicTime> strays_;             // sequences nobody here knows, when each was last cancelled
  std::map<std::string, std::string> refused_;               // workers whose hello was refused, and why
  std::optional<MonotonicTime> last_admission_, last_acks_;
  double seconds_per_admission_ = 0.1;
  SchedulerStats counters_;
};

}  // namespace stria
