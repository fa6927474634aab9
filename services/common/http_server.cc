#include "services/common/http_server.h"

#include <chrono>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "absl/strings/str_cat.h"
#include "services/common/http_error.h"
#include "services/common/http_session.h"

namespace stria {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// Acceptor and timer, shared with the coroutines that wait on them, so that the server may go first.
struct Listener {
  explicit Listener(asio::io_context& io) : acceptor(io), tick(io), retry(io) {}
  tcp::acceptor acceptor;
  asio::steady_timer tick, retry;
  std::shared_ptr<HttpShared> shared = std::make_shared<HttpShared>();
  bool closed = false;
};

void Prepare(tcp::socket& socket, const HttpServerOptions& options) {
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (options.send_buffer_bytes > 0) socket.set_option(asio::socket_base::send_buffer_size(options.send_buffer_bytes), ignored);
  socket.non_blocking(true, ignored);
}

void RefuseConnection(tcp::socket socket) {
  static const std::string body = ErrorJson(503, "too many connections");
  const std::string bytes = absl::StrCat(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: ",
      body.size(), "\r\n\r\n", body);
  boost::system::error_code ignored;
  socket.write_some(asio::buffer(bytes), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

asio::awaitable<void> Accept(std::shared_ptr<Listener> listener) {
  while (!listener->closed) {
    auto [error, socket] = co_await listener->acceptor.async_accept(kAwait);
    if (listener->closed) break;
    if (error) {
      // Out of descriptors, mostly: the connection waits in the backlog until some are back.
      listener->retry.expires_after(std::chrono::milliseconds(100));
      co_await listener->retry.async_wait(kAwait);
      continue;
    }
    Prepare(socket, listener->shared->options);
    if (listener->shared->sessions.size() >= listener->shared->options.max_connections) {
      RefuseConnection(std::move(socket));
      continue;
    }
    std::make_shared<HttpSession>(std::move(socket), listener->shared)->Start();
  }
}

// Sessions only ever close here: they are destroyed by their own coroutines.
void CheckDeadlines(const HttpShared& shared) {
  const MonotonicTime now = std::chrono::steady_clock::now();
  for (HttpSession* session : shared.sessions) session->CheckDeadline(now);
}

asio::awaitable<void> Tick(std::shared_ptr<Listener> listener, std::weak_ptr<HttpServer*> server) {
  while (!server.expired()) {
    listener->tick.expires_after(std::chrono::seconds(1));
    co_await listener->tick.async_wait(kAwait);
    CheckDeadlines(*listener->shared);
  }
}

class HttpServerImpl final : public HttpServer {
 public:
  explicit HttpServerImpl(asio::io_context& io) : io_(io), listener_(std::make_shared<Listener>(io)) {}

  ~HttpServerImpl() override {
    StopAccepting();
    alive_.reset();
    listener_->tick.cancel();
    for (HttpSession* session : listener_->shared->sessions) session->Close();
  }

  absl::Status Open(HttpServerOptions options) {
    boost::system::error_code error;
    const auto fail = [&](const char* what) {
      return absl::UnavailableError(absl::StrCat(what, " ", options.address, ":", options.port, ": ", error.message()));
    };
    const auto address = asio::ip::make_address(options.address, error);
    if (error) return absl::InvalidArgumentError(absl::StrCat("not an IP address to listen on: ", options.address));
    const tcp::endpoint endpoint(address, options.port);
    tcp::acceptor& acceptor = listener_->acceptor;
    if (acceptor.open(endpoint.protocol(), error); error) return fail("opening");
    acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (acceptor.bind(endpoint, error); error) return fail("binding");
    if (acceptor.listen(asio::socket_base::max_listen_connections, error); error) return fail("listening on");
    port_ = acceptor.local_endpoint(error).port();
    listener_->shared->options = std::move(options);
    asio::co_spawn(io_, Accept(listener_), asio::detached);
    asio::co_spawn(io_, Tick(listener_, alive_), asio::detached);
    return absl::OkStatus();
  }

  void Route(std::string method, std::string path, HttpHandler handler) override {
    listener_->shared->router.Add(std::move(method), path, std::move(handler));
  }

  std::vector<std::pair<std::string, std::string>> Routes() const override { return listener_->shared->router.Routes(); }

  void SetGuard(HttpGuard guard) override { listener_->shared->guard = std::move(guard); }

  uint16_t port() const override { return port_; }

  void StopAccepting() override {
    if (std::exchange(listener_->closed, true)) return;
    listener_->shared->stopping = true;
    boost::system::error_code ignored;
    listener_->acceptor.close(ignored);
    listener_->retry.cancel();
    for (HttpSession* session : listener_->shared->sessions) session->CloseIfIdle();
  }

 private:
  asio::io_context& io_;
  std::shared_ptr<Listener> listener_;
  std::shared_ptr<HttpServer*> alive_ = std::make_shared<HttpServer*>(this);
  uint16_t port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(asio::io_context& io, HttpServerOptions options) {
  auto server = std::make_unique<HttpServerImpl>(io);
  if (absl::Status status = server->Open(std::move(options)); !status.ok()) return status;
  return server;
}

}  // namespace stria
