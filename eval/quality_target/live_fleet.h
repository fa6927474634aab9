// The real engine and the real controller in one process, without sockets: workers that serve text of one kind, each request teacher-forced
// and shadowed, under the tier vectors that the controller makes of their telemetry. Time is virtual, so a run depends on its options alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "controller/controller.h"
#include "worker/engine.h"

namespace stria {

struct Workload {
  std::string name;
  std::vector<int32_t> tokens;  // requests are windows of it, at drawn offsets; it wraps
};

struct FleetOptions {
  uint32_t streams = 8;         // requests at a time, of each worker
  uint32_t prompt = 448, answer = 192;  // tokens of a request
  double canary_rate = 1.0 / 16;
  uint64_t seed = 1;
  int threads = 2;
};

// What was measured over some steps, weighted by scored tokens.
struct Scored {
  double tokens = 0, kl = 0, bits = 0, tau = 0;  // sums, but for tokens of which it is the count
  double mean_kl() const { return tokens > 0 ? kl / tokens : 0; }
  double mean_bits() const { return tokens > 0 ? bits / tokens : 0; }
  double mean_tau() const { return tokens > 0 ? tau / tokens : 0; }
  Scored& operator+=(const Scored& other);
};

class LiveFleet {
 public:
  // One worker for each workload, all of one model: one vector for all. The transformer was made for twice `streams` rows.
  static absl::StatusOr<std::unique_ptr<LiveFleet>> Create(Transformer& transformer, const std::string& fingerprint,
                                                           const Settings& settings, const Calibration& calibration,
                                                           const FleetOptions& options, std::vector<Workload> workloads);

  // What a worker serves from the next request on.
  void Serve(size_t worker, Workload workload) { workers_[worker].workload = std::move(workload); }
  // One request alone, of these tokens, the first `prompt` of which are its prompt; the worker begins no others after it.
  absl::Status Converse(size_t worker, std::vector<int32_t> tokens, uint32_t prompt);
  // One turn of every worker. What each scored in it, in order.
  std::vector<Scored> Step();
  bool idle() const;

  double tau() const { return InForce(model().quality.loop, brain_.settings()).tau; }
  double kl_budget() const { return InForce(model().quality.loop, brain_.settings()).kl_budget; }
  double bits() const;  // mean width of the vector in force, keys and values
  const ModelState& model() const { return brain_.models().at(fingerprint_); }

 private:
  struct Worker {
    std::string name;
    Workload workload;
    std::unique_ptr<Engine> engine;
    uint64_t number = 0, running = 0;
    bool converses = false;
  };

  LiveFleet(const std::string& fingerprint, const Settings& settings, const Calibration& calibration, const FleetOptions& options);
  absl::Status StartRequest(Worker& worker, std::vector<int32_t> tokens, uint32_t prompt);
  void Publish();

  const std::string fingerprint_;
  const FleetOptions options_;
  FakeClock clock_;
  Controller brain_;
  std::vector<Worker> workers_;
  uint64_t next_id_ = 1;
};

}  // namespace stria
