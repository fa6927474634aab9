// Many workers as the controller sees them, in one process: each with its own two sockets, saying hello and firing once a second, applying
// and acknowledging tier vectors. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "services/common/bus.h"
#include "tests/integration/controller/running_controller.h"

namespace stria {

struct FleetOptions {
  int workers = 1000;
  uint32_t layers = 80;
  Duration firing_every = std::chrono::seconds(1);
};

class Fleet {
 public:
  // Connects at once; hellos begin with Run().
  Fleet(const RunningController::Ports& ports, FleetOptions options);

  // Runs until `done` says so, which is asked a few hundred times a second.
  void Run(const std::function<bool()>& done);

  // Firing begins and ends here: before, subscriptions may still be under way, and telemetry is lost while they are.
  void SetFiring(bool firing) { firing_ = firing; }

  uint64_t fired() const { return fired_; }
  // Workers that have applied `epoch` or a later one.
  int Applied(uint64_t epoch) const;
  // Seconds from `since` until each worker applied the first epoch after `epoch`; only of those that have.
  std::vector<double> Delays(uint64_t epoch, MonotonicTime since) const;

 private:
  struct Worker {
    std::string name;
    std::unique_ptr<BusSocket> tiers, telemetry;
    uint64_t epoch = 0, number = 0;
    std::map<uint64_t, MonotonicTime> applied_at;  // by epoch
    MonotonicTime next_hello, next_firing;
  };
  void Turn(Worker& worker, MonotonicTime now);
  std::string Firing(Worker& worker);

  FleetOptions options_;
  // A context allows about a thousand sockets and has one I/O thread.
  std::vector<std::unique_ptr<BusContext>> contexts_;
  std::vector<Worker> workers_;
  bool firing_ = false;
  uint64_t fired_ = 0;
};

}  // namespace stria
