// One client connection of the HTTP server: reads a request, runs its handler, answers, and again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "base/clock.h"
#include "services/common/http_router.h"
#include "services/common/http_server.h"

namespace stria {

class HttpSession;

// What the connections of one server share. Lives as long as the server or any connection.
struct HttpShared {
  HttpServerOptions options;
  HttpRouter router;
  HttpGuard guard;
  std::unordered_set<HttpSession*> sessions;
  size_t buffered_bytes = 0;  // claimed by larger bodies
  bool stopping = false;  // answer what runs, then close
};

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(boost::asio::ip::tcp::socket socket, std::shared_ptr<HttpShared> shared);
  ~HttpSession();

  void Start();
  // Closes the connection when what it waits for is overdue. Deadlines are looked at once a second by the server, which costs
  // less than a timer per read and write.
  void CheckDeadline(MonotonicTime now);
  void CloseIfIdle();
  void Close();

 private:
  class Exchange;

  boost::asio::awaitable<void> Run();
  boost::asio::awaitable<bool> ServeOne();  // false: close now
  boost::asio::awaitable<bool> Handle(HttpRequest request, std::vector<std::string> segments);
  template <typename Parser>
  std::optional<HttpResponse> Screen(const Parser& parser, HttpRequest* request, std::vector<std::string>* segments);
  boost::asio::awaitable<bool> SendAll(std::string_view bytes);
  boost::asio::awaitable<bool> SendResponse(const HttpResponse& response);
  boost::asio::awaitable<void> RefuseAndDrain(HttpResponse response);
  std::string Head(int status, std::string_view content_type) const;
  void SetDeadline(int seconds);
  void ClearDeadline() { deadline_ = MonotonicTime::max(); }
  void WatchClient();

  boost::asio::ip::tcp::socket socket_;
  std::shared_ptr<HttpShared> shared_;
  boost::beast::flat_buffer buffer_;
  MonotonicTime deadline_ = MonotonicTime::max();
  bool idle_ = true;         // between requests
  bool keep_alive_ = false;  // of the request at hand
  bool head_only_ = false;   // HEAD: no body
  bool chunked_ = true;      // HTTP/1.1: streams in chunks; 1.0: to the end of the connection
  Exchange* exchange_ = nullptr;
};

}  // namespace stria
