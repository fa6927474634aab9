// The admin API over HTTP and JSON, under /v1/. docs/api.md describes it.
#pragma once

#include <string>

#include "services/common/http_server.h"
#include "services/controller/control_loop.h"
#include "services/controller/event_hub.h"

namespace stria {

// Where the process really listens, ports chosen by the kernel included; part of /v1/status.
struct Listening {
  std::string http, telemetry, tiers;
};

// Server, loop and events outlive the requests.
void AddAdminRoutes(HttpServer& server, ControlLoop& loop, EventHub& events, const Listening& listening);

}  // namespace stria
