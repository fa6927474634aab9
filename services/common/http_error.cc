#include "services/common/http_error.h"

#include <nlohmann/json.hpp>

namespace stria {
namespace {

const char* TypeOf(int http_status) {
  switch (http_status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    default: return http_status >= 500 ? "server_error" : "invalid_request_error";
  }
}

nlohmann::ordered_json TextOrNull(std::string_view text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

}  // namespace

std::string ErrorJson(int http_status, std::string_view message, std::string_view type, std::string_view param,
                      std::string_view code) {
  nlohmann::ordered_json error;
  error["message"] = message;
  error["type"] = type.empty() ? TypeOf(http_status) : type;
  error["param"] = TextOrNull(param);
  error["code"] = TextOrNull(code);
  nlohmann::ordered_json json;
  json["error"] = std::move(error);
  // Messages quote input, which may be invalid UTF-8: it must not throw here.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpResponse ErrorResponse(int http_status, std::string_view message, std::string_view type, std::string_view param,
                           std::string_view code) {
  HttpResponse response;
  response.status = http_status;
  response.body = ErrorJson(http_status, message, type, param, code);
  return response;
}

int HttpStatus(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange: return 400;
    case absl::StatusCode::kUnauthenticated: return 401;
    case absl::StatusCode::kPermissionDenied: return 403;
    case absl::StatusCode::kNotFound: return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted: return 409;
    case absl::StatusCode::kFailedPrecondition: return 412;
    case absl::StatusCode::kResourceExhausted: return 429;
    case absl::StatusCode::kUnimplemented: return 501;
    case absl::StatusCode::kUnavailable: return 503;
    case absl::StatusCode::kDeadlineExceeded: return 504;
    default: return 500;
  }
}

HttpResponse ErrorResponse(const absl::Status& status) {
  const auto message = status.message();
  return ErrorResponse(HttpStatus(status), std::string_view(message.data(), message.size()));
}

}  // namespace stria
