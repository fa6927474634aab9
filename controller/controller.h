// The controller's brain: readings and operators' changes in, tier vectors out. Pure: no sockets, files or clocks of its own.
// One thread. The process around it (services/controller) follows one rule: what Draft() returns and what ProposeRevision()
// returns is committed to disk before Commit() and Adopt() make it true, and only what is true is ever sent or acknowledged.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "controller/model_state.h"
#include "controller/settings.h"
#include "controller/tier_policy.h"
#include "controller/worker_registry.h"
#include "proto/telemetry.h"
#include "proto/tiers.h"

namespace stria {

// One change by an operator.
struct Revision {
  uint64_t number = 0;  // 1, 2, 3, …
  double unix_seconds = 0;
  std::string who, why;
  Settings before, after;
  friend bool operator==(const Revision&, const Revision&) = default;
};

// A vector with its epoch, ready to be committed.
struct Publication {
  TierVector vector;
  std::vector<Flip> flips;
};

// What survives a restart.
struct ControllerState {
  Settings settings;
  uint64_t revision = 0;   // of the newest change; 0: defaults
  uint64_t max_epoch = 0;  // highest ever committed or heard
  std::vector<ModelState> models;
};

enum class SyncState { kNever, kStale, kSynced };
const char* Name(SyncState state);  // "NEVER", "STALE", "SYNCED"

struct ControllerCounters {
  std::array<uint64_t, kFrameVerdicts> frames{};
  std::array<uint64_t, kReadingVerdicts> readings{};
  uint64_t hellos = 0, hellos_refused = 0;
  uint64_t acks = 0, acks_ignored = 0;
  uint64_t vectors_sent = 0;
  uint64_t flips = 0;  // of layers that a reading had already decided
};

struct FrameResult {
  FrameVerdict verdict;
  ReadingCounts readings{};
};

struct Delivery {
  std::string worker;
  const TierVector* vector;  // valid until the brain is next told anything
};

class Controller {
 public:
  // `calibrations` are of some models, by fingerprint; one whose number of layers is not the model's is not used.
  Controller(ControllerState state, std::unique_ptr<TierPolicy> policy, std::vector<Calibration> calibrations = {});

  FrameResult OnFrame(const CanaryFrame& frame, MonotonicTime now);
  // Quality counts while a vector is held too, but then moves nothing.
  FrameVerdict OnFrame(const QualityFrame& frame, MonotonicTime now);
  // InvalidArgument, ResourceExhausted or FailedPrecondition (another shape of the model is live) name worker and value.
  absl::Status OnHello(const TierHello& hello, MonotonicTime now);
  void OnAck(const TierAck& ack, MonotonicTime now);

  // The revision that would take the settings to `after`. Aborted when `check_revision` is given and no longer the newest;
  // InvalidArgument as CheckSettings(); FailedPrecondition when they choose the budget policy and a model that has a worker has no
  // calibration.
  // Nothing changes until Adopt(). With nothing to change the answer's number is the newest revision's, before == after.
  absl::StatusOr<Revision> ProposeRevision(const Settings& after, std::optional<uint64_t> check_revision, std::string who,
                                           std::string why, double unix_seconds) const;
  void Adopt(const Revision& revision, MonotonicTime now);

  // What `after` would put in force at once, for each model with a worker; the epochs are 0. Nothing changes.
  std::vector<TierVector> Preview(const Settings& after, MonotonicTime now) const;

  // Vectors that differ from what is in force (of models with a worker), each with the next free epoch.
  std::vector<Publication> Draft(double unix_seconds) const;
  // The model as it will be after Commit(publication): the snapshot to write in the same transaction.
  ModelState AfterCommit(const Publication& publication) const;
  void Commit(const Publication& publication, MonotonicTime now);

  // Vectors to send now, booked as sent: at once when new, when a worker says that it has another one, and again until
  // acknowledged, at intervals that double from kResend to kResendMax.
  std::vector<Delivery> TakeDue(MonotonicTime now);
  static constexpr Duration kResend = std::chrono::milliseconds(500);
  static constexpr Duration kResendMax = std::chrono::seconds(8);

  // Models whose evidence changed since the last call, and the outer loops' steps since.
  std::vector<const ModelState*> TakeUnsaved();
  std::vector<LoopStep> TakeLoopSteps(double unix_seconds);

  int ForgetSilentWorkers(MonotonicTime now, Duration after) { return registry_.ForgetSilent(now, after); }

  SyncState Sync(const WorkerRecord& worker, MonotonicTime now) const;
  const Settings& settings() const { return settings_; }
  uint64_t revision() const { return revision_; }
  uint64_t max_epoch() const { return max_epoch_; }
  const std::map<std::string, ModelState>& models() const { return models_; }  // by fingerprint
  // nullptr: there is none for this model.
  const Calibration* CalibrationOf(const ModelState& state) const;
  const WorkerRegistry& registry() const { return registry_; }
  const ControllerCounters& counters() const { return counters_; }

 private:
  void Hear(WorkerRecord& worker, MonotonicTime now);
  absl::Status CheckShape(const TierHello& hello, MonotonicTime now) const;
  FrameVerdict JudgeState(const ModelState& state, const CanaryFrame& frame) const;

  Settings settings_;
  uint64_t revision_;
  uint64_t max_epoch_;
  std::map<std::string, ModelState> models_;
  std::unique_ptr<TierPolicy> policy_;
  std::vector<Calibration> calibrations_;
  WorkerRegistry registry_;
  ControllerCounters counters_;
  std::vector<LoopStep> loop_steps_;
};

}  // namespace stria
