#include "services/common/http_client.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <charconv>
#include <optional>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stria {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Error = boost::system::error_code;

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

struct HttpClient::Impl {
  std::string host;
  uint16_t port;
  std::chrono::milliseconds timeout;
  asio::io_context io{1};
  std::optional<beast::tcp_stream> stream;
  beast::flat_buffer buffer;

  // Runs one asynchronous operation to its end: that is how a blocking call gets a timeout in Asio.
  template <typename Start>
  Error Do(Start&& start) {
    Error result;
    stream->expires_after(timeout);
    start([&result](Error error, auto&&...) { result = error; });
    io.restart();
    io.run();
    return result;
  }

  absl::Status Fail(const char* what, Error error) {
    stream.reset();
    const std::string text = absl::StrCat(what, " http://", host, ":", port, ": ", error.message());
    return error == beast::error::timeout ? absl::DeadlineExceededError(text) : absl::UnavailableError(text);
  }

  absl::Status Connect() {
    Error error;
    asio::ip::tcp::resolver resolver(io);
    const auto endpoints = resolver.resolve(host, std::to_string(port), error);
    stream.emplace(io);
    buffer.clear();
    if (error) return Fail("resolving", error);
    error = Do([&](auto done) { stream->async_connect(endpoints, std::move(done)); });
    if (error) return Fail("connecting to", error);
    stream->socket().set_option(asio::ip::tcp::no_delay(true), error);
    return absl::OkStatus();
  }

  std::string Serialize(std::string_view method, std::string_view target, std::string_view body, const HttpHeaders& headers) const {
    const bool v6 = host.find(':') != std::string::npos;
    std::string bytes(method);
    bytes.append(" ").append(target).append(" HTTP/1.1\r\n");
    bytes += absl::StrCat("Host: ", v6 ? "[" : "", host, v6 ? "]" : "", ":", port, "\r\n");
    bool has_type = false;
    for (const auto& [name, value] : headers) {
      bytes.append(name).append(": ").append(value).append("\r\n");
      has_type |= beast::iequals(name, "content-type");
    }
    if (!body.empty() && !has_type) bytes += "Content-Type: application/json\r\n";
    if (!body.empty() || method == "POST" || method == "PUT") bytes += absl::StrCat("Content-Length: ", body.size(), "\r\n");
    return bytes.append("\r\n").append(body);
  }

  // *stale: the server may have closed the connection while it was idle, before it saw this request.
  absl::StatusOr<HttpReply> Exchange(const std::string& request, bool head, const std::function<bool(std::string_view)>& on_piece,
                                     bool* stale) {
    Error error = Do([&](auto done) { asio::async_write(*stream, asio::buffer(request), std::move(done)); });
    if (error) {
      *stale = error != beast::error::timeout;
      return Fail("writing to", error);
    }
    http::response_parser<http::buffer_body> parser;
    parser.skip(head);
    parser.body_limit(boost::none);
    error = Do([&](auto done) { http::async_read_header(*stream, buffer, parser, std::move(done)); });
    if (error) {
      *stale = error == http::error::end_of_stream || error == asio::error::connection_reset;
      return Fail("reading from", error);
    }
    HttpReply reply;
    reply.status = parser.get().result_int();
    for (const auto& field : parser.get()) {
      std::string name(View(field.name_string()));
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      if (name == "content-type") reply.content_type = std::string(View(field.value()));
      reply.headers.emplace_back(std::move(name), std::string(View(field.value())));
    }
    char piece[16384];
    while (!parser.is_done()) {
      parser.get().body().data = piece;
      parser.get().body().size = sizeof piece;
      error = Do([&](auto done) { http::async_read_some(*stream, buffer, parser, std::move(done)); });
      if (error == http::error::need_buffer) error = {};
      const size_t got = sizeof piece - parser.get().body().size;
      if (got > 0 && !on_piece(std::string_view(piece, got))) {
        stream.reset();
        return reply;
      }
      if (error) return Fail("reading from", error);
    }
    if (!parser.keep_alive()) stream.reset();
    return reply;
  }
};

absl::StatusOr<std::unique_ptr<HttpClient>> HttpClient::Create(std::string_view url, double timeout_seconds) {
  const auto bad = [&] { return absl::InvalidArgumentError(absl::StrCat("not a URL like http://127.0.0.1:8000: ", std::string(url))); };
  std::string_view rest = url;
  constexpr std::string_view kScheme = "http://";
  if (rest.substr(0, kScheme.size()) != kScheme) return bad();
  rest.remove_prefix(kScheme.size());
  if (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
  if (rest.empty() || rest.find_first_of("/?#@ ") != std::string_view::npos) return bad();
  std::string_view host = rest, port_text;
  if (rest.front() == '[') {
    const size_t end = rest.find(']');
    if (end == std::string_view::npos) return bad();
    host = rest.substr(1, end - 1);
    port_text = rest.substr(end + 1);
  } else if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    host = rest.substr(0, colon);
    port_text = rest.substr(colon);
  }
  uint16_t port = 80;
  if (!port_text.empty()) {
    port_text.remove_prefix(1);
    const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
    if (error != std::errc() || end != port_text.data() + port_text.size() || port == 0) return bad();
  }
  if (host.empty()) return bad();
  return std::make_unique<HttpClient>(std::string(host), port, timeout_seconds);
}

HttpClient::HttpClient(std::string host, uint16_t port, double timeout_seconds) : impl_(std::make_unique<Impl>()) {
  impl_->host = std::move(host);
  impl_->port = port;
  impl_->timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
}

HttpClient::~HttpClient() = default;

void HttpClient::Close() { impl_->stream.reset(); }

absl::StatusOr<HttpReply> HttpClient::Request(std::string_view method, std::string_view target, std::string_view body,
                                              const HttpHeaders& headers) {
  std::string collected;
  STRIA_ASSIGN_OR_RETURN(HttpReply reply, Stream(method, target, body, headers, [&collected](std::string_view piece) {
                           collected += piece;
                           return true;
                         }));
  reply.body = std::move(collected);
  return reply;
}

absl::StatusOr<HttpReply> HttpClient::Stream(std::string_view method, std::string_view target, std::string_view body,
                                             const HttpHeaders& headers, const std::function<bool(std::string_view)>& on_piece) {
  const std::string request = impl_->Serialize(method, target, body, headers);
  const bool reused = impl_->stream.has_value();
  if (!reused) STRIA_RETURN_IF_ERROR(impl_->Connect());
  bool stale = false;
  absl::StatusOr<HttpReply> reply = impl_->Exchange(request, method == "HEAD", on_piece, &stale);
  if (reply.ok() || !reused || !stale) return reply;
  STRIA_RETURN_IF_ERROR(impl_->Connect());
  return impl_->Exchange(request, method == "HEAD", on_piece, &stale);
}

}  // namespace stria
