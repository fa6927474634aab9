#include "services/common/http_session.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <tuple>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>

#include "absl/strings/str_cat.h"
#include "services/common/http_error.h"

namespace stria {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);  // errors are values: nothing throws across a suspension
constexpr size_t kReadAhead = size_t{64} << 10;               // of pipelined requests, while a handler runs
constexpr size_t kDrainBytes = size_t{64} << 20;              // of a refused body

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

MonotonicTime Now() { return std::chrono::steady_clock::now(); }

bool WouldBlock(const boost::system::error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again;
}

HttpResponse ReadError(const boost::system::error_code& error, const HttpServerOptions& options) {
  if (error == http::error::body_limit) {
    return ErrorResponse(413, absl::StrCat("the request's body is over ", options.max_body_bytes, " bytes"), "", "", "body_too_large");
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return ErrorResponse(431, absl::StrCat("the request's header is over ", options.max_header_bytes, " bytes"));
  }
  return ErrorResponse(400, absl::StrCat("not an HTTP request: ", error.message()));
}

// A larger body's part of the server's memory, until its request is answered. Small ones are bounded by the number of connections.
class BodyClaim {
 public:
  static std::optional<BodyClaim> Make(HttpShared& shared, size_t bytes) {
    constexpr size_t kSmall = size_t{64} << 10;
    if (bytes <= kSmall) bytes = 0;
    if (bytes > 0 && bytes > shared.options.max_buffered_bytes - std::min(shared.buffered_bytes, shared.options.max_buffered_bytes)) {
      return std::nullopt;
    }
    return BodyClaim(shared, bytes);
  }
  BodyClaim(BodyClaim&& other) noexcept : shared_(other.shared_), bytes_(std::exchange(other.bytes_, 0)) {}
  BodyClaim& operator=(BodyClaim&&) = delete;
  ~BodyClaim() { shared_.buffered_bytes -= bytes_; }

 private:
  BodyClaim(HttpShared& shared, size_t bytes) : shared_(shared), bytes_(bytes) { shared_.buffered_bytes += bytes_; }

  HttpShared& shared_;
  size_t bytes_;
};

}  // namespace

class HttpSession::Exchange final : public HttpExchange {
 public:
  Exchange(HttpSession& session, HttpRequest request) : session_(session), request_(std::move(request)) {}

  const HttpRequest& request() const override { return request_; }

  asio::awaitable<void> Respond(HttpResponse response) override {
    if (answered_) co_return;
    answered_ = true;
    const bool sent = co_await session_.SendResponse(response);
    if (!sent) Gone();
  }

  asio::awaitable<bool> StartStream(int status, std::string content_type) override {
    if (answered_) co_return false;
    answered_ = streaming_ = true;
    std::string head = session_.Head(status, content_type);
    head += session_.chunked_ ? "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n" : "Cache-Control: no-cache\r\n\r\n";
    if (gone_) co_return false;
    const bool sent = co_await session_.SendAll(head);
    if (!sent) Gone();
    co_return sent;
  }

  asio::awaitable<bool> Write(std::string chunk) override {
    if (gone_ || !streaming_) co_return false;
    if (chunk.empty() || session_.head_only_) co_return true;  // an empty chunk would end the stream
    if (session_.chunked_) {
      char size[24];
      const int length = std::snprintf(size, sizeof size, "%zx\r\n", chunk.size());
      chunk.insert(0, size, length);
      chunk += "\r\n";
    }
    const bool sent = co_await session_.SendAll(chunk);
    if (!sent) Gone();
    co_return sent;
  }

  void OnClientGone(std::function<void()> callback) override {
    on_gone_ = std::move(callback);
    if (!gone_) {
      if (!std::exchange(watched_, true)) session_.WatchClient();
      return;
    }
    // Already known: still called from outside the handler, as the contract has it, unless the handler is done by then.
    asio::post(session_.socket_.get_executor(), [session = session_.shared_from_this(), this] {
      if (session->exchange_ == this) CallBack();
    });
  }

  void Gone() {
    gone_ = true;
    CallBack();
  }

  bool answered() const { return answered_; }
  bool streaming() const { return streaming_; }
  bool gone() const { return gone_; }
  bool watched() const { return watched_; }

 private:
  void CallBack() {
    if (std::function<void()> callback = std::exchange(on_gone_, nullptr)) callback();
  }

  HttpSession& session_;
  HttpRequest request_;
  std::function<void()> on_gone_;
  bool answered_ = false, streaming_ = false, gone_ = false, watched_ = false;
};

HttpSession::HttpSession(asio::ip::tcp::socket socket, std::shared_ptr<HttpShared> shared)
    : socket_(std::move(socket)), shared_(std::move(shared)), buffer_(shared_->options.max_header_bytes + kReadAhead) {
  shared_->sessions.insert(this);
}

HttpSession::~HttpSession() { shared_->sessions.erase(this); }

void HttpSession::Start() {
  asio::co_spawn(socket_.get_executor(), [self = shared_from_this()] { return self->Run(); }, asio::detached);
}

void HttpSession::Close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void HttpSession::CloseIfIdle() {
  if (idle_) Close();
}

void HttpSession::CheckDeadline(MonotonicTime now) {
  if (now >= deadline_) Close();
}

void HttpSession::SetDeadline(int seconds) { deadline_ = Now() + std::chrono::seconds(seconds); }

// Reads on while a handler works, so that the end of the connection is seen at once. A pipelined request is kept for later.
void HttpSession::WatchClient() {
  socket_.async_wait(asio::socket_base::wait_read, [self = shared_from_this(), exchange = exchange_](boost::system::error_code error) {
    if (self->exchange_ != exchange || error == asio::error::operation_aborted) return;
    boost::beast::flat_buffer& buffer = self->buffer_;
    const size_t room = std::min<size_t>(4096, kReadAhead - std::min(kReadAhead, buffer.size()));
    if (room == 0) return;  // a flood of pipelined requests: its end shows when they are served
    if (!error) buffer.commit(self->socket_.read_some(buffer.prepare(room), error));
    if (error && !WouldBlock(error)) return exchange->Gone();
    self->WatchClient();
  });
}

asio::awaitable<bool> HttpSession::SendAll(std::string_view bytes) {
  while (!bytes.empty()) {
    boost::system::error_code error;
    bytes.remove_prefix(socket_.write_some(asio::buffer(bytes.data(), bytes.size()), error));
    if (!error) continue;
    if (!WouldBlock(error)) co_return false;
    // The client lags by a full send buffer. Every bit of progress renews its time.
    SetDeadline(shared_->options.write_stall_seconds);
    const auto [waited] = co_await socket_.async_wait(asio::socket_base::wait_write, kAwait);
    ClearDeadline();
    if (waited) co_return false;
  }
  co_return true;
}

std::string HttpSession::Head(int status, std::string_view content_type) const {
  const auto reason = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
  std::string head = absl::StrCat("HTTP/1.1 ", status, " ");
  head.append(reason.data(), reason.size());
  head += "\r\n";
  if (!content_type.empty()) head.append("Content-Type: ").append(content_type).append("\r\n");
  head += keep_alive_ && !shared_->stopping ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  return head;
}

asio::awaitable<bool> HttpSession::SendResponse(const HttpResponse& response) {
  const bool bodiless = response.status == 204 || response.status == 304;
  std::string bytes = Head(response.status, bodiless ? "" : response.content_type);
  for (const auto& [name, value] : response.headers) {
    // A value with a line break would be a header, or a body, of its own.
    if (value.find_first_of("\r\n") != std::string::npos) continue;
    bytes.append(name).append(": ").append(value).append("\r\n");
  }
  if (!bodiless) bytes += absl::StrCat("Content-Length: ", response.body.size(), "\r\n");
  bytes += "\r\n";
  if (!head_only_ && !bodiless) bytes += response.body;
  const bool sent = co_await SendAll(bytes);
  co_return sent;
}

// Answers a request that is not read to its end. Closing at once would reset the connection and lose the answer, so what the
// client still sends is read and dropped for a moment.
asio::awaitable<void> HttpSession::RefuseAndDrain(HttpResponse response) {
  keep_alive_ = false;
  head_only_ = false;
  const bool sent = co_await SendResponse(response);
  if (!sent) co_return;
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  SetDeadline(2);
  std::string sink(kReadAhead, '\0');
  for (size_t drained = 0; drained < kDrainBytes;) {
    const auto [error, count] = co_await socket_.async_read_some(asio::buffer(sink), kAwait);
    if (error) break;
    drained += count;
  }
}

asio::awaitable<void> HttpSession::Run() {
  // Here and everywhere: an await is a statement of its own. GCC 12 compiles one inside a condition to a trap.
  for (bool open = true; open;) open = co_await ServeOne();
  Close();
}

asio::awaitable<bool> HttpSession::ServeOne() {
  const HttpServerOptions& options = shared_->options;
  if (shared_->stopping) co_return false;
  http::request_parser<http::string_body> parser;
  parser.header_limit(static_cast<uint32_t>(options.max_header_bytes));
  parser.body_limit(options.max_body_bytes);

  idle_ = buffer_.size() == 0;
  SetDeadline(options.idle_timeout_seconds);
  const auto [head_error, head_bytes] = co_await http::async_read_header(socket_, buffer_, parser, kAwait);
  idle_ = false;
  if (head_error == http::error::end_of_stream || head_error == asio::error::operation_aborted) co_return false;
  if (head_error) {
    if (head_error.category() == http::make_error_code(http::error::bad_method).category()) {
      co_await RefuseAndDrain(ReadError(head_error, options));
    }
    co_return false;
  }
  chunked_ = parser.get().version() >= 11;
  keep_alive_ = parser.keep_alive() && !shared_->stopping;
  HttpRequest request;
  std::vector<std::string> segments;
  const std::optional<HttpResponse> refusal = Screen(parser, &request, &segments);
  if (refusal) {
    if (!parser.is_done()) {
      co_await RefuseAndDrain(*refusal);
      co_return false;
    }
    const bool sent = co_await SendResponse(*refusal);
    co_return sent && keep_alive_;
  }
  const size_t size = parser.is_done() ? 0 : parser.content_length() ? *parser.content_length() : options.max_body_bytes;
  const std::optional<BodyClaim> claim = BodyClaim::Make(*shared_, size);
  if (!claim) {
    HttpResponse busy = ErrorResponse(503, "too many large bodies are being received; try again", "", "", "busy");
    busy.headers.emplace_back("Retry-After", "1");
    co_await RefuseAndDrain(std::move(busy));
    co_return false;
  }
  if (parser.get()[http::field::expect] == "100-continue" && chunked_ && !parser.is_done()) {
    const bool sent = co_await SendAll("HTTP/1.1 100 Continue\r\n\r\n");
    if (!sent) co_return false;
  }
  SetDeadline(options.idle_timeout_seconds);
  const auto [error, body_bytes] = co_await http::async_read(socket_, buffer_, parser, kAwait);
  ClearDeadline();
  if (error) {
    if (error == http::error::body_limit || error == http::error::bad_chunk || error == http::error::bad_chunk_extension) {
      co_await RefuseAndDrain(ReadError(error, options));
    }
    co_return false;
  }
  request.body = std::move(parser.release().body());
  const bool open = co_await Handle(std::move(request), std::move(segments));
  co_return open;
}

// What the header alone decides. The request but for its body.
template <typename Parser>
std::optional<HttpResponse> HttpSession::Screen(const Parser& parser, HttpRequest* request, std::vector<std::string>* segments) {
  const auto& header = parser.get();
  request->method = std::string(View(header.method_string()));
  head_only_ = request->method == "HEAD";
  std::optional<HttpTarget> target = ParseRequestTarget(View(header.target()));
  if (!target) return ErrorResponse(400, "the request's path is not well-formed");
  request->path = std::move(target->path);
  request->query = std::move(target->query);
  request->authorization = std::string(View(header[http::field::authorization]));
  *segments = std::move(target->segments);
  const absl::Status allowed = shared_->guard ? shared_->guard(*request) : absl::OkStatus();
  if (allowed.ok()) return std::nullopt;
  HttpResponse refusal = ErrorResponse(allowed);
  if (refusal.status == 401) refusal.headers.emplace_back("WWW-Authenticate", "Bearer");
  return refusal;
}

asio::awaitable<bool> HttpSession::Handle(HttpRequest request, std::vector<std::string> segments) {
  HttpRouter::Match match = shared_->router.Find(request.method, segments);
  if (match.handler == nullptr) {
    HttpResponse response;
    if (match.allowed.empty()) {
      response = ErrorResponse(404, absl::StrCat("unknown path ", request.path), "", "", "unknown_path");
    } else if (request.method == "OPTIONS") {
      response.status = 204;
    } else {
      response = ErrorResponse(405, absl::StrCat("method ", request.method, " is not allowed on ", request.path), "", "",
                               "method_not_allowed");
    }
    if (!match.allowed.empty()) response.headers.emplace_back("Allow", match.allowed);
    const bool sent = co_await SendResponse(response);
    co_return sent && keep_alive_;
  }

  request.path_args = std::move(match.args);
  Exchange exchange(*this, std::move(request));
  exchange_ = &exchange;
  bool failed = false;
  try {
    co_await (*match.handler)(exchange);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "handler of %s threw: %s\n", exchange.request().path.c_str(), e.what());
    failed = true;
  }
  exchange_ = nullptr;
  if (exchange.watched()) {
    boost::system::error_code ignored;
    socket_.cancel(ignored);
  }
  if (exchange.gone()) co_return false;
  if (!exchange.answered()) {
    const HttpResponse response = ErrorResponse(500, "the server failed to answer this request");
    const bool sent = co_await SendResponse(response);
    co_return sent && keep_alive_;
  }
  // A stream that broke off must not look complete: no last chunk, the connection just ends.
  if (failed) co_return false;
  if (!exchange.streaming()) co_return keep_alive_;
  if (!chunked_) co_return false;
  if (head_only_) co_return keep_alive_;
  const bool sent = co_await SendAll("0\r\n\r\n");
  co_return sent && keep_alive_;
}

}  // namespace stria
