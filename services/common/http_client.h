// A small blocking HTTP/1.1 client: for striactl, tests and benches. One connection, kept alive, opened again when it was closed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stria {

struct HttpReply {
  int status = 0;
  std::string content_type;
  std::string body;  // empty after Stream
  std::vector<std::pair<std::string, std::string>> headers = {};  // names in lower case
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

class HttpClient {
 public:
  // "http://HOST:PORT" (port 80 when absent; a path is refused). Does not connect yet.
  static absl::StatusOr<std::unique_ptr<HttpClient>> Create(std::string_view url, double timeout_seconds = 10);
  HttpClient(std::string host, uint16_t port, double timeout_seconds = 10);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Unavailable: no connection, or it broke, naming host and port; DeadlineExceeded: nothing came for timeout_seconds. Any HTTP
  // status is a reply, not an error. A body is sent as application/json unless `headers` say otherwise.
  absl::StatusOr<HttpReply> Request(std::string_view method, std::string_view target, std::string_view body = "",
                                    const HttpHeaders& headers = {});
  absl::StatusOr<HttpReply> Get(std::string_view target) { return Request("GET", target); }

  // The same, handing over each piece of the body as it arrives. When `on_piece` returns false the connection is closed and the
  // reply so far returned.
  absl::StatusOr<HttpReply> Stream(std::string_view method, std::string_view target, std::string_view body,
                                   const HttpHeaders& headers, const std::function<bool(std::string_view)>& on_piece);
  void Close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stria
