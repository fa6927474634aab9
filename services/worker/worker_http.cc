#include "services/worker/worker_http.h"

#include <chrono>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/status_macros.h"
#include "services/common/http_error.h"
#include "services/common/service_routes.h"

namespace stria {
namespace {

namespace asio = boost::asio;

constexpr auto kLoopTimeout = std::chrono::seconds(30);

// What the loop's thread hands back. Shared, because either side may give up first.
struct Handover {
  explicit Handover(asio::io_context& io) : timer(io) {}
  asio::steady_timer timer;
  std::string body;
  bool done = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerHttp>> WorkerHttp::Start(Options options, const Metrics& metrics, LoopTasks& tasks) {
  std::unique_ptr<WorkerHttp> http(new WorkerHttp(std::move(options.tokens), tasks));
  STRIA_ASSIGN_OR_RETURN(http->server_, HttpServer::Create(http->io_, options.server));
  WorkerHttp* self = http.get();
  http->server_->SetGuard(TokenGuard(http->tokens_));
  ServiceRoutes routes;
  routes.metrics = &metrics;
  routes.config_json = std::move(options.config_json);
  routes.health = [self] { return self->Health(); };
  routes.ready = [self] { return self->Ready(); };
  AddServiceRoutes(*http->server_, std::move(routes));
  http->server_->Route("GET", "/debug/sequences", [self](HttpExchange& exchange) { return self->DebugSequences(exchange); });
  http->signals_ = std::make_unique<StopSignals>(http->io_, std::move(options.on_stop));
  http->thread_ = std::thread([self] { self->io_.run(); });
  return http;
}

WorkerHttp::~WorkerHttp() {
  if (!thread_.joinable()) return;
  io_.stop();
  thread_.join();
}

absl::Status WorkerHttp::Ready() const {
  switch (phase_.load()) {
    case WorkerPhase::kLoading: return absl::UnavailableError("the model is loading");
    case WorkerPhase::kDraining: return absl::UnavailableError("the worker is draining");
    case WorkerPhase::kServing: break;
  }
  return absl::OkStatus();
}

asio::awaitable<void> WorkerHttp::DebugSequences(HttpExchange& exchange) {
  if (phase_ == WorkerPhase::kLoading) {
    HttpResponse loading = ErrorResponse(503, "the model is loading");
    co_await exchange.Respond(std::move(loading));
    co_return;
  }
  const auto handover = std::make_shared<Handover>(io_);
  handover->timer.expires_after(kLoopTimeout);
  tasks_.Post([this, handover] {
    // On the loop's thread. The timer belongs to the HTTP thread, so the answer goes there first.
    asio::post(io_, [handover, body = describe_()]() mutable {
      handover->body = std::move(body);
      handover->done = true;
      handover->timer.cancel();
    });
  });
  co_await handover->timer.async_wait(asio::as_tuple(asio::use_awaitable));
  HttpResponse response;
  if (handover->done) {
    response.body = std::move(handover->body);
  } else {
    response = ErrorResponse(504, "the step loop did not answer");
  }
  co_await exchange.Respond(std::move(response));
}

}  // namespace stria
