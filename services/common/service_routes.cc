#include "services/common/service_routes.h"

#include <memory>
#include <utility>

#include "services/common/http_error.h"

namespace stria {
namespace {

// Not healthy, whatever the code of its status, is a 503: probes look at nothing else.
HttpResponse ProbeResponse(const absl::Status& status, const char* ok) {
  HttpResponse response;
  if (!status.ok()) return ErrorResponse(503, std::string_view(status.message().data(), status.message().size()));
  response.body = std::string("{\"status\":\"") + ok + "\"}";
  return response;
}

}  // namespace

void AddServiceRoutes(HttpServer& server, ServiceRoutes given) {
  const auto routes = std::make_shared<const ServiceRoutes>(std::move(given));
  server.Route("GET", "/health", [routes](HttpExchange& exchange) -> boost::asio::awaitable<void> {
    co_await exchange.Respond(ProbeResponse(routes->health(), "ok"));
  });
  server.Route("GET", "/ready", [routes](HttpExchange& exchange) -> boost::asio::awaitable<void> {
    co_await exchange.Respond(ProbeResponse(routes->ready(), "ready"));
  });
  server.Route("GET", "/config", [routes](HttpExchange& exchange) -> boost::asio::awaitable<void> {
    HttpResponse response;
    response.body = routes->config_json;
    co_await exchange.Respond(std::move(response));
  });
  if (routes->metrics == nullptr) return;
  server.Route("GET", "/metrics", [routes](HttpExchange& exchange) -> boost::asio::awaitable<void> {
    if (routes->before_metrics) routes->before_metrics();
    HttpResponse response;
    response.content_type = kMetricsContentType;
    response.body = routes->metrics->Serialize();
    co_await exchange.Respond(std::move(response));
  });
}

}  // namespace stria
