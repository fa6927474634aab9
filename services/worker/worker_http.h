// The worker's own HTTP, on a thread of its own that sleeps unless asked: /metrics, /health, /ready, /config, /debug/sequences.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/access.h"
#include "services/common/http_server.h"
#include "services/common/metrics.h"
#include "services/common/process.h"
#include "services/worker/loop_tasks.h"

namespace stria {

enum class WorkerPhase { kLoading, kServing, kDraining };

class WorkerHttp {
 public:
  struct Options {
    HttpServerOptions server;
    TokenTable tokens = {};  // with some, all but probes and metrics wants one
    std::string config_json;
    std::function<void()> on_stop;  // SIGTERM, SIGINT; on the HTTP thread
  };
  // Answers from now on: alive, and not ready until the phase says so. `metrics` and `tasks` outlive this.
  static absl::StatusOr<std::unique_ptr<WorkerHttp>> Start(Options options, const Metrics& metrics, LoopTasks& tasks);
  ~WorkerHttp();

  uint16_t port() const { return server_->port(); }
  std::vector<std::pair<std::string, std::string>> Routes() const { return server_->Routes(); }
  void set_phase(WorkerPhase phase) { phase_ = phase; }
  // What /debug/sequences answers. Called on the loop's thread, through `tasks`. Set before kServing.
  void set_describe(std::function<std::string()> describe) { describe_ = std::move(describe); }
  // What /health answers from kServing on; OK while loading. Called on the HTTP thread. Set before kServing.
  void set_health(std::function<absl::Status()> health) { health_ = std::move(health); }

 private:
  WorkerHttp(TokenTable tokens, LoopTasks& tasks) : tokens_(std::move(tokens)), tasks_(tasks) {}
  absl::Status Health() const { return phase_ == WorkerPhase::kLoading || !health_ ? absl::OkStatus() : health_(); }
  absl::Status Ready() const;
  boost::asio::awaitable<void> DebugSequences(HttpExchange& exchange);

  const TokenTable tokens_;
  LoopTasks& tasks_;
  boost::asio::io_context io_{1};
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<StopSignals> signals_;
  std::atomic<WorkerPhase> phase_ = WorkerPhase::kLoading;
  std::function<std::string()> describe_;
  std::function<absl::Status()> health_;
  std::thread thread_;
};

}  // namespace stria
