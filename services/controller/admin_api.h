// The admin API over HTTP and JSON, under /v1/. docs/openapi.json describes it and is served with it.
#pragma once

#include <string>

#include "services/common/access.h"
#include "services/common/http_server.h"
#include "services/controller/cache_queries.h"
#include "services/controller/control_loop.h"
#include "services/controller/event_hub.h"

namespace stria {

// Where the process really listens, ports chosen by the kernel included; part of /v1/status.
struct Listening {
  std::string http, telemetry, tiers;
};

// All arguments outlive the requests. With tokens the whole server is guarded, other routes too: reading needs a viewer's, everything else an
// operator's; probes, metrics and the live page's files are open.
void AddAdminRoutes(HttpServer& server, ControlLoop& loop, EventHub& events, CacheQueries& caches, const TokenTable& tokens,
                    const Listening& listening);

}  // namespace stria
