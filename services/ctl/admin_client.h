// The controller's admin API from the outside: JSON in and out, failures with the exit code that they mean.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/http_client.h"
#include "services/ctl/exit_codes.h"

namespace stria {

struct Failure {
  ExitCode code;
  std::string message;  // one line
};

template <typename T>
using Result = std::variant<T, Failure>;

class AdminClient {
 public:
  // InvalidArgument names a URL that is none. An empty token is not sent.
  static absl::StatusOr<AdminClient> Create(const std::string& url, double timeout_seconds, const std::string& token);

  Result<nlohmann::json> Get(std::string_view target) { return Call("GET", target, ""); }
  Result<nlohmann::json> Call(std::string_view method, std::string_view target, const std::string& body);

  // Follows server-sent events until `on_event` returns false or the controller goes away.
  Result<std::monostate> Follow(std::string_view target,
                                const std::function<bool(const std::string& name, const nlohmann::json& data)>& on_event);

 private:
  AdminClient(std::string url, std::unique_ptr<HttpClient> http, HttpHeaders headers)
      : url_(std::move(url)), http_(std::move(http)), headers_(std::move(headers)) {}
  Failure Away(const absl::Status& status) const;
  std::string url_;
  std::unique_ptr<HttpClient> http_;
  HttpHeaders headers_;
};

// Cuts a stream of server-sent events, which arrives in pieces of any size, into events. Comments are skipped.
class EventParser {
 public:
  using OnEvent = std::function<bool(const std::string& name, const std::string& data)>;
  // False once `on_event` was.
  bool Feed(std::string_view piece, const OnEvent& on_event);

 private:
  std::string buffer_, name_, data_;
};

}  // namespace stria
