// The controller's one thread of thought: frames in, brain, disk, frames out, in that order. Knows bytes and files, but no
// sockets and no HTTP, so tests drive it directly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "controller/controller.h"
#include "proto/cache_report.h"
#include "services/common/log.h"
#include "services/controller/event_hub.h"
#include "services/controller/state_store.h"

namespace stria {

struct LoopCounters {
  uint64_t malformed_telemetry = 0, malformed_tiers = 0;  // frames that did not decode
  uint64_t undelivered = 0;     // sends refused by the socket (a peer that left or does not read)
  uint64_t state_errors = 0;    // failed writes to the state file
  double firing_seconds = 0;    // of the workers, as they measured it
};

class ControlLoop {
 public:
  using SendTiers = std::function<bool(std::string_view peer, std::string_view frame)>;

  ControlLoop(OpenedStore opened, EventHub& events, const Clock& clock, SendTiers send,
              std::vector<Calibration> calibrations = {});

  // Frames of the telemetry and the tiers socket. Changes become vectors at the next Flush(), so that a burst makes one epoch.
  void OnTelemetry(std::string_view frame);
  void OnTiers(const std::string& peer, std::string_view frame);
  // Asks a worker what its cache holds. NotFound names the worker; Unavailable: it cannot be reached now. Answers, also late ones, go to
  // the function given here, from the connection that was asked only.
  absl::Status AskCache(const std::string& worker, const CacheQuery& query);
  void set_on_cache_report(std::function<void(CacheReport)> on_report) { on_cache_report_ = std::move(on_report); }
  // Commits what changed and sends what is due.
  void Flush();
  // A few times a second: Flush(), evidence to disk at most once a second, workers' states to watchers, the forgotten dropped.
  void Tick();
  // Evidence to disk now (before a planned exit).
  void Save();

  // Durable when it returns. Statuses as ProposeRevision(); Unavailable when the state file cannot be written.
  absl::StatusOr<Revision> ChangeSettings(const Settings& after, std::optional<uint64_t> check_revision, std::string who,
                                          std::string why, bool dry_run);

  const Controller& brain() const { return brain_; }
  StateStore& store() { return *store_; }
  const LoopCounters& counters() const { return counters_; }
  const std::string& damage() const { return damage_; }
  // Of the latest write to the state file.
  const absl::Status& state_status() const { return state_status_; }
  MonotonicTime Now() const { return clock_.Now(); }
  double UnixSeconds() const { return clock_.UnixSeconds(); }

  static constexpr Duration kSnapshotEvery = std::chrono::seconds(1);
  // Of one model's averages, beside its firings, to watchers.
  static constexpr Duration kSmoothedEvery = std::chrono::milliseconds(100);
  static constexpr Duration kForgetAfter = std::chrono::minutes(5);

 private:
  void OnFrame(const CanaryFrame& frame);
  void OnFrame(const QualityFrame& frame);
  void WarnRefused(const TelemetryHeader& frame, FrameVerdict verdict);
  bool Stored(absl::Status status);
  void Deliver();
  void AnnounceWorkers();
  void WarnSeldom(std::string_view what, std::string_view why);
  void Announce(std::string name, nlohmann::json data);

  std::unique_ptr<StateStore> store_;
  std::string damage_;
  Controller brain_;
  EventHub& events_;
  const Clock& clock_;
  SendTiers send_;
  std::function<void(CacheReport)> on_cache_report_;
  Logger log_{"controller"};
  LoopCounters counters_;
  absl::Status state_status_;
  std::map<std::string, std::string> peers_;      // worker → routing id of its latest hello
  std::map<std::string, MonotonicTime> smoothed_told_;  // by model
  std::map<std::string, std::string> announced_;  // worker → state as last told to watchers
  std::vector<LoopStep> unwritten_steps_;
  MonotonicTime last_snapshot_{}, last_warning_{}, last_sweep_{};
  uint64_t warnings_held_back_ = 0;
};

}  // namespace stria
