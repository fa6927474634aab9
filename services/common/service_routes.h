// The routes that every service has: /metrics, /health, /ready, /config.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "services/common/http_server.h"
#include "services/common/metrics.h"

namespace stria {

struct ServiceRoutes {
  const Metrics* metrics = nullptr;
  std::string config_json;                         // effective config, fixed at start
  std::function<void()> before_metrics = nullptr;  // brings gauges up to date; may be empty
  // Liveness: OK unless restarting the process would help. Readiness: OK when it can serve. Not OK answers 503 with the message.
  std::function<absl::Status()> health = [] { return absl::OkStatus(); };
  std::function<absl::Status()> ready = [] { return absl::OkStatus(); };
};

void AddServiceRoutes(HttpServer& server, ServiceRoutes routes);

}  // namespace stria
