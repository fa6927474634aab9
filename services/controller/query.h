// Numbers in a request's query.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/common/http_server.h"

namespace stria {

// Lists are cut to so many entries, whatever is asked for.
inline constexpr uint64_t kMaxListed = 10'000;

// `otherwise` when absent. InvalidArgument names the value.
inline absl::StatusOr<uint64_t> QueryNumber(const HttpRequest& request, const std::string& name, uint64_t otherwise) {
  const auto it = request.query.find(name);
  if (it == request.query.end()) return otherwise;
  uint64_t value = 0;
  if (!absl::SimpleAtoi(it->second, &value)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " = ", it->second, ": must be a whole number"));
  }
  return value;
}

}  // namespace stria
