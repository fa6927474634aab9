// GET /v1/watch: what happens, as server-sent events.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "services/common/http_server.h"
#include "services/controller/control_loop.h"
#include "services/controller/event_hub.h"

namespace stria {

// Query: `from`, the first revision to tell out of the record before what happens now; `firings=true`, canary firings
// too, with the averages after them; `snapshot=true`, first of all what is at that moment. A comment every
// few seconds keeps the connection alive and finds out when the client is gone.
boost::asio::awaitable<void> Watch(ControlLoop& loop, EventHub& events, HttpExchange& exchange);

}  // namespace stria
