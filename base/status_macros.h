// Early return on a failed absl::Status or absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define STRIA_RETURN_IF_ERROR(expr)                 \
  do {                                              \
    if (absl::Status stria_status_ = (expr); !stria_status_.ok()) [[unlikely]] \
      return stria_status_;                         \
  } while (0)

#define STRIA_CONCAT_INNER_(a, b) a##b
#define STRIA_CONCAT_(a, b) STRIA_CONCAT_INNER_(a, b)
#define STRIA_ASSIGN_OR_RETURN(lhs, expr) \
  STRIA_ASSIGN_OR_RETURN_IMPL_(STRIA_CONCAT_(stria_statusor_, __LINE__), lhs, expr)
#define STRIA_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) [[unlikely]] return std::move(tmp).status(); \
  lhs = *std::move(tmp)
