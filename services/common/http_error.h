// Errors in OpenAI's JSON form: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/common/http_server.h"

namespace stria {

// `param` and `code` are null in the JSON when empty. `type` by status when empty: 4xx "invalid_request_error" (401
// "authentication_error", 403 "permission_error", 404 "not_found_error", 429 "rate_limit_error"), 5xx "server_error".
std::string ErrorJson(int http_status, std::string_view message, std::string_view type = "", std::string_view param = "",
                      std::string_view code = "");
HttpResponse ErrorResponse(int http_status, std::string_view message, std::string_view type = "", std::string_view param = "",
                           std::string_view code = "");

// InvalidArgument and OutOfRange 400, Unauthenticated 401, PermissionDenied 403, NotFound 404, AlreadyExists and Aborted 409,
// FailedPrecondition 412, ResourceExhausted 429, Unimplemented 501, Unavailable 503, DeadlineExceeded 504, the rest 500.
int HttpStatus(const absl::Status& status);
HttpResponse ErrorResponse(const absl::Status& status);

}  // namespace stria
