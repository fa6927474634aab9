#include "services/common/http_server.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "services/common/http_client.h"
#include "services/common/http_error.h"
#include "services/common/http_router.h"

namespace stria {
namespace {

namespace asio = boost::asio;

// A client that sends exactly the bytes it is told to.
class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { Close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  void Send(std::string_view bytes) { send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void HalfClose() { shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  // Reads until `text` has come or the connection ends.
  std::string ReadUntil(std::string_view text) {
    std::string all;
    char piece[4096];
    while (all.find(text) == std::string::npos) {
      pollfd item{fd_, POLLIN, 0};
      if (poll(&item, 1, 20000) <= 0) return all + "<timeout>";
      const ssize_t count = recv(fd_, piece, sizeof piece, 0);
      if (count <= 0) return all + "<end>";
      all.append(piece, count);
    }
    return all;
  }
  std::string ReadAll() { return ReadUntil("\1never\1"); }

 private:
  int fd_;
  bool connected_ = false;
};

// A server on a thread of its own.
class HttpServerTest : public testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    auto server = HttpServer::Create(io_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->Route("GET", "/hello", [](HttpExchange& exchange) -> asio::awaitable<void> {
      HttpResponse response;
      response.body = "{\"hello\":1}";
      response.headers.emplace_back("X-Kind", "test");
      co_await exchange.Respond(std::move(response));
    });
    server_->Route("POST", "/echo", [](HttpExchange& exchange) -> asio::awaitable<void> {
      HttpResponse response;
      response.content_type = "text/plain";
      response.body = exchange.request().body + "|" + exchange.request().authorization;
      co_await exchange.Respond(std::move(response));
    });
    server_->Route("GET", "/things/{}/parts/{}", [](HttpExchange& exchange) -> asio::awaitable<void> {
      HttpResponse response;
      const HttpRequest& request = exchange.request();
      response.body = request.path_args.at(0) + "," + request.path_args.at(1) + "," + request.query.at("q");
      co_await exchange.Respond(std::move(response));
    });
    server_->Route("GET", "/stream", [](HttpExchange& exchange) -> asio::awaitable<void> {
      co_await exchange.StartStream(200, "text/event-stream");
      for (int i = 0; i < 3; ++i) {
        std::string event = "data: " + std::to_string(i) + "\n\n";
        co_await exchange.Write(std::move(event));
      }
    });
    server_->Route("GET", "/flood", [this](HttpExchange& exchange) -> asio::awaitable<void> {
      co_await exchange.StartStream(200, "text/plain");
      for (bool open = true; open; written_ += 10000) open = co_await exchange.Write(std::string(10000, 'f'));
      flood_ended_.set_value();
    });
    // Answers only when the client has gone.
    server_->Route("GET", "/wait", [this](HttpExchange& exchange) -> asio::awaitable<void> {
      asio::steady_timer timer(io_, std::chrono::hours(1));
      exchange.OnClientGone([&] {
        ++gone_;
        timer.cancel();
      });
      waiting_.set_value();
      co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
      HttpResponse response;
      response.body = "too late";
      co_await exchange.Respond(std::move(response));
      wait_ended_.set_value();
    });
    server_->Route("GET", "/throw", [](HttpExchange& exchange) -> asio::awaitable<void> {
      throw std::runtime_error("handler bug");
      co_return;
    });
    server_->Route("GET", "/silent", [](HttpExchange&) -> asio::awaitable<void> { co_return; });
    server_->Route("GET", "/broken-stream", [](HttpExchange& exchange) -> asio::awaitable<void> {
      co_await exchange.StartStream(200, "text/plain");
      co_await exchange.Write("half");
      throw std::runtime_error("handler bug");
    });
    thread_ = std::thread([this] { io_.run(); });
  }

  void TearDown() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  // On the server's thread.
  void OnServer(std::function<void()> task) {
    std::promise<void> done;
    asio::post(io_, [&] {
      task();
      done.set_value();
    });
    done.get_future().get();
  }

  uint16_t port() const { return server_->port(); }
  HttpClient Client() { return HttpClient("127.0.0.1", port(), 20); }

  asio::io_context io_{1};
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::atomic<int> gone_ = 0;
  std::atomic<size_t> written_ = 0;
  std::promise<void> waiting_, wait_ended_, flood_ended_;
};

void ExpectError(const std::string& body, const std::string& type) {
  const auto json = nlohmann::json::parse(body, nullptr, false);
  ASSERT_TRUE(json.is_object()) << body;
  EXPECT_EQ(json["error"]["type"], type) << body;
  EXPECT_TRUE(json["error"]["message"].is_string()) << body;
  EXPECT_TRUE(json["error"].contains("param") && json["error"].contains("code")) << body;
}

TEST_F(HttpServerTest, AnswersAndKeepsTheConnection) {
  Start();
  HttpClient client = Client();
  for (int i = 0; i < 3; ++i) {
    const auto reply = client.Get("/hello");
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(reply->content_type, "application/json");
    EXPECT_EQ(reply->body, "{\"hello\":1}");
  }
  const auto echo = client.Request("POST", "/echo", std::string(100000, 'b'), {{"Authorization", "Bearer k"}});
  ASSERT_TRUE(echo.ok());
  EXPECT_EQ(echo->body, std::string(100000, 'b') + "|Bearer k");
  const auto head = client.Request("HEAD", "/hello");
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->status, 200);
  EXPECT_EQ(head->body, "");
  const auto things = client.Get("/things/a%2Fb%20c/parts/%C3%A9?q=1+2%26&x");
  ASSERT_TRUE(things.ok());
  EXPECT_EQ(things->body, "a/b c,\xC3\xA9,1 2&");
}

TEST_F(HttpServerTest, ErrorsHaveOpenAisForm) {
  Start();
  HttpClient client = Client();
  const auto missing = client.Get("/nope");
  ASSERT_TRUE(missing.ok());
  EXPECT_EQ(missing->status, 404);
  ExpectError(missing->body, "not_found_error");
  const auto method = client.Request("DELETE", "/hello");
  ASSERT_TRUE(method.ok());
  EXPECT_EQ(method->status, 405);
  ExpectError(method->body, "invalid_request_error");
  const auto options = client.Request("OPTIONS", "/hello");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->status, 204);
  bool allowed = false;
  for (const auto& [name, value] : options->headers) allowed |= name == "allow" && value == "GET, HEAD, OPTIONS";
  EXPECT_TRUE(allowed);
  for (const char* path : {"/throw", "/silent"}) {
    const auto failed = client.Get(path);
    ASSERT_TRUE(failed.ok()) << path;
    EXPECT_EQ(failed->status, 500);
    ExpectError(failed->body, "server_error");
  }
  const auto escape = client.Get("/hello%2");
  ASSERT_TRUE(escape.ok());
  EXPECT_EQ(escape->status, 400);
}

TEST_F(HttpServerTest, StreamsInChunks) {
  Start();
  HttpClient client = Client();
  for (int i = 0; i < 2; ++i) {  // the connection is kept after a stream
    std::string all;
    const auto reply = client.Stream("GET", "/stream", "", {}, [&](std::string_view piece) {
      all += piece;
      return true;
    });
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->content_type, "text/event-stream");
    EXPECT_EQ(all, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
  }
  RawClient old(port());
  old.Send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string reply = old.ReadAll();
  EXPECT_EQ(reply.find("chunked"), std::string::npos);
  EXPECT_NE(reply.find("\r\n\r\ndata: 0\n\ndata: 1\n\ndata: 2\n\n<end>"), std::string::npos) << reply;
}

TEST_F(HttpServerTest, BrokenStreamDoesNotLookComplete) {
  Start();
  RawClient client(port());
  client.Send("GET /broken-stream HTTP/1.1\r\nHost: h\r\n\r\n");
  const std::string reply = client.ReadAll();
  EXPECT_NE(reply.find("4\r\nhalf\r\n"), std::string::npos);
  EXPECT_EQ(reply.find("0\r\n\r\n"), std::string::npos);
}

TEST_F(HttpServerTest, RefusesBadAndOversizedRequests) {
  HttpServerOptions options;
  options.max_body_bytes = 1000;
  options.max_header_bytes = 2000;
  Start(options);
  const struct {
    std::string request, status;
  } cases[] = {
      {"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n" + std::string(1001, 'b'), "413"},
      {"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n" + std::string(5000, 'b'), "413"},
      {"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
      {"GET /hello HTTP/1.1\r\nX: " + std::string(3000, 'x') + "\r\n\r\n", "431"},
      {std::string("\x16\x03\x01\x02\x00\x01", 6) + std::string(100, '\0') + "\r\n\r\n", "400"},
      {"GET /hello HTTP/9.9\r\n\r\n", "400"},
      {"GET hello HTTP/1.1\r\n\r\n", "400"},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"},
      {"GET /hello HTTP/1.1\r\nbad header\r\n\r\n", "400"},
  };
  for (const auto& c : cases) {
    RawClient client(port());
    client.Send(c.request);
    client.HalfClose();
    const std::string reply = client.ReadAll();
    EXPECT_EQ(reply.substr(0, 12), "HTTP/1.1 " + c.status) << c.request.substr(0, 80) << "\n" << reply;
    EXPECT_NE(reply.find("\"error\""), std::string::npos) << c.request.substr(0, 80);
  }
  HttpClient client = Client();
  EXPECT_EQ(client.Request("POST", "/echo", std::string(1000, 'b'))->status, 200);
}

TEST_F(HttpServerTest, TheGuardIsAskedBeforeTheBody) {
  Start();
  OnServer([&] {
    server_->SetGuard([](const HttpRequest& request) {
      if (request.path == "/hello" || request.authorization == "good") return absl::OkStatus();
      return request.authorization.empty() ? absl::UnauthenticatedError("who are you?") : absl::PermissionDeniedError("not you");
    });
  });
  RawClient upload(port());
  upload.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n");
  const std::string reply = upload.ReadUntil("who are you?");
  EXPECT_EQ(reply.substr(0, 12), "HTTP/1.1 401") << reply;
  EXPECT_NE(reply.find("WWW-Authenticate: Bearer"), std::string::npos);
  HttpClient client = Client();
  EXPECT_EQ(client.Get("/hello")->status, 200);
  EXPECT_EQ(client.Get("/no/such/path")->status, 401) << "nobody learns which paths there are";
  EXPECT_EQ(client.Request("GET", "/stream", "", {{"Authorization", "bad"}})->status, 403);
  EXPECT_EQ(client.Request("POST", "/echo", "abc", {{"Authorization", "good"}})->body, "abc|good");
}

TEST_F(HttpServerTest, LargeBodiesShareABudget) {
  HttpServerOptions options;
  options.max_body_bytes = 300'000;
  options.max_buffered_bytes = 500'000;
  Start(options);
  const std::string header = "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n";
  RawClient first(port());
  first.Send(header + std::string(1000, 'b'));
  RawClient chunked(port());
  HttpClient client = Client();
  // The first one's header has been read once this comes back: one thread serves both.
  for (int status = 0; status != 503;) {
    RawClient second(port());
    second.Send(header + std::string(1000, 'b'));
    second.HalfClose();
    const std::string reply = second.ReadAll();
    status = reply.size() > 12 ? std::stoi(reply.substr(9, 3)) : 0;
  }
  chunked.Send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(chunked.ReadUntil("try again").substr(0, 12), "HTTP/1.1 503") << "one without a length may become the longest";
  EXPECT_EQ(client.Request("POST", "/echo", std::string(10'000, 's'))->status, 200) << "small ones are always taken";
  first.Send(std::string(299'000, 'b'));
  EXPECT_EQ(first.ReadUntil("b|").substr(0, 12), "HTTP/1.1 200");
  EXPECT_EQ(client.Request("POST", "/echo", std::string(300'000, 'b'))->status, 200) << "there is room again";
}

TEST_F(HttpServerTest, ExpectContinueIsAnswered) {
  Start();
  RawClient client(port());
  client.Send("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_NE(client.ReadUntil("\r\n\r\n").find("100 Continue"), std::string::npos);
  client.Send("abc");
  EXPECT_NE(client.ReadUntil("abc|").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  RawClient client(port());
  std::string requests;
  for (int i = 0; i < 50; ++i) requests += "GET /things/" + std::to_string(i) + "/parts/p?q=! HTTP/1.1\r\nHost: h\r\n\r\n";
  client.Send(requests + "GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string replies = client.ReadAll();
  size_t at = 0;
  for (int i = 0; i < 50; ++i) {
    at = replies.find("\r\n\r\n" + std::to_string(i) + ",p,!", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_NE(replies.find("{\"hello\":1}<end>"), std::string::npos);
}

TEST_F(HttpServerTest, TellsTheHandlerThatTheClientIsGone) {
  Start();
  {
    RawClient client(port());
    client.Send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    waiting_.get_future().get();
  }
  wait_ended_.get_future().get();
  EXPECT_EQ(gone_, 1);
}

TEST_F(HttpServerTest, PipelinedBytesDoNotHideTheEnd) {
  Start();
  {
    RawClient client(port());
    client.Send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    waiting_.get_future().get();
    client.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  }
  wait_ended_.get_future().get();
  EXPECT_EQ(gone_, 1);
}

TEST_F(HttpServerTest, SlowReaderIsCutOffAndDelaysNobody) {
  HttpServerOptions options;
  options.write_stall_seconds = 1;
  options.send_buffer_bytes = 16384;
  Start(options);
  RawClient slow(port(), 4096);
  slow.Send("GET /flood HTTP/1.1\r\nHost: h\r\n\r\n");
  HttpClient other = Client();
  EXPECT_EQ(other.Get("/hello")->status, 200);
  flood_ended_.get_future().get();  // while the client does not read
  EXPECT_LT(written_, 4u << 20);
  EXPECT_EQ(other.Get("/hello")->status, 200);
}

TEST_F(HttpServerTest, HalfARequestDoesNotHoldAConnectionForEver) {
  HttpServerOptions options;
  options.idle_timeout_seconds = 1;
  Start(options);
  RawClient header(port()), body(port()), nothing(port());
  header.Send("GET /hel");
  body.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(nothing.ReadAll(), "<end>");
  EXPECT_EQ(header.ReadAll(), "<end>");
  EXPECT_EQ(body.ReadAll(), "<end>");
}

TEST_F(HttpServerTest, ManyIdleConnectionsAndTheLimit) {
  HttpServerOptions options;
  options.max_connections = 201;
  Start(options);
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(std::make_unique<RawClient>(port()));
    ASSERT_TRUE(idle.back()->connected());
  }
  HttpClient client = Client();
  EXPECT_EQ(client.Get("/hello")->status, 200);
  RawClient over(port());
  const std::string refused = over.ReadAll();
  EXPECT_EQ(refused.substr(0, 12), "HTTP/1.1 503");
  idle.front()->Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(idle.front()->ReadUntil("{\"hello\":1}").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, StopAcceptingEndsIdleConnectionsAndLetsAnswersEnd) {
  Start();
  RawClient idle(port()), busy(port());
  busy.Send("GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
  waiting_.get_future().get();
  OnServer([this] { server_->StopAccepting(); });
  EXPECT_EQ(idle.ReadAll(), "<end>");
  EXPECT_FALSE(RawClient(port()).connected());
  busy.Close();
  wait_ended_.get_future().get();
}

TEST_F(HttpServerTest, ErrorsAtBinding) {
  Start();
  asio::io_context io;
  HttpServerOptions taken;
  taken.port = port();
  const auto again = HttpServer::Create(io, taken);
  EXPECT_TRUE(absl::IsUnavailable(again.status()));
  EXPECT_NE(again.status().message().find(std::to_string(port())), std::string::npos);
  HttpServerOptions name;
  name.address = "localhost.example";
  EXPECT_TRUE(absl::IsInvalidArgument(HttpServer::Create(io, name).status()));
}

TEST(HttpError, QuotesInvalidUtf8) {
  const auto json = nlohmann::json::parse(ErrorJson(400, "bad \xff byte", "", "temperature"), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["error"]["param"], "temperature");
  EXPECT_TRUE(json["error"]["code"].is_null());
  EXPECT_EQ(HttpStatus(absl::ResourceExhaustedError("")), 429);
  EXPECT_EQ(ErrorResponse(absl::NotFoundError("x")).status, 404);
}

TEST(HttpTarget, DecodesAndRefuses) {
  const auto target = ParseRequestTarget("/a/%2e%2e/b?x=%41&y=&z");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->path, "/a/../b");
  EXPECT_EQ(target->segments, (std::vector<std::string>{"a", "..", "b"}));
  EXPECT_EQ(target->query.at("x"), "A");
  EXPECT_EQ(target->query.at("z"), "");
  for (const char* bad : {"", "a", "*", "/%", "/%4", "/%zz", "/a?%f", "/%00", "http://h/"}) EXPECT_FALSE(ParseRequestTarget(bad)) << bad;
}

TEST(HttpClient, Urls) {
  for (const char* bad : {"", "127.0.0.1:1", "https://h", "http://", "http://h:0", "http://h:99999", "http://h:1x", "http://h/path",
                          "http://u@h", "http://[::1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(HttpClient::Create(bad).status())) << bad;
  }
  EXPECT_TRUE(HttpClient::Create("http://127.0.0.1:8000/").ok());
  EXPECT_TRUE(HttpClient::Create("http://[::1]:8000").ok());
  HttpClient closed("127.0.0.1", 1);
  const auto reply = closed.Get("/");
  EXPECT_TRUE(absl::IsUnavailable(reply.status()));
  EXPECT_NE(reply.status().message().find("127.0.0.1:1"), std::string::npos);
}

}  // namespace
}  // namespace stria
