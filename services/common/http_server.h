// An asynchronous HTTP/1.1 server on Boost.Beast: one io_context, one thread, coroutines. Bounded in body size, header size,
// connections, in bytes of bodies held, and in bytes queued for a slow reader.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stria {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without the query, percent-decoded
  std::map<std::string, std::string> query;
  std::string body;
  std::string authorization;  // header, as sent
  std::vector<std::string> path_args;  // what the {}s of the route matched
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// One request being answered. Lives until its handler returns. Used from the server's thread only.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;

  // Answers at once.
  virtual boost::asio::awaitable<void> Respond(HttpResponse response) = 0;

  // Or streams (chunked): headers now, then any number of writes. Each write returns false once the client is gone or has not
  // read for the server's stall limit.
  virtual boost::asio::awaitable<bool> StartStream(int status, std::string content_type) = 0;
  virtual boost::asio::awaitable<bool> Write(std::string chunk) = 0;

  // Called at most once, from the server's thread, when the client hangs up before the answer is complete.
  virtual void OnClientGone(std::function<void()> callback) = 0;
};

// With GCC 12 every co_await is a statement of its own (`const bool open = co_await exchange.Write(text);`, then `if (!open)`), and
// Respond gets a named response: an await inside a condition, or of a braced temporary, compiles and then traps.
using HttpHandler = std::function<boost::asio::awaitable<void>(HttpExchange&)>;

// Asked before every request, whatever its path, when its header is there and its body is not yet. Not OK refuses it:
// Unauthenticated is a 401, PermissionDenied a 403.
using HttpGuard = std::function<absl::Status(const HttpRequest&)>;

struct HttpServerOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0: the kernel chooses
  size_t max_body_bytes = size_t{8} << 20;
  size_t max_header_bytes = size_t{32} << 10;
  size_t max_connections = 4096;
  size_t max_buffered_bytes = size_t{256} << 20;  // of larger bodies, on all connections together
  int idle_timeout_seconds = 75;
  int write_stall_seconds = 30;
  int send_buffer_bytes = 256 << 10;  // the kernel's, per connection: what a reader may lag behind before it counts as slow
};

class HttpServer {
 public:
  // Binds at once. Errors name address and port.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(boost::asio::io_context& io, HttpServerOptions options);
  virtual ~HttpServer() = default;

  // `path` may hold {} for one segment: "/debug/sequences/{}". Before the first request only.
  // Unknown paths answer 404, known paths with another method 405, both in OpenAI's JSON error form.
  virtual void Route(std::string method, std::string path, HttpHandler handler) = 0;
  // Method and path of each, as given to Route().
  virtual std::vector<std::pair<std::string, std::string>> Routes() const = 0;
  // Before the first request only. Without one everything is allowed.
  virtual void SetGuard(HttpGuard guard) = 0;
  virtual uint16_t port() const = 0;
  virtual void StopAccepting() = 0;
};

}  // namespace stria
