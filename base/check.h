// Assertions about our own code. Bad input from outside is an absl::Status, never a CHECK.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace stria::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace stria::internal

#define STRIA_CHECK(condition)                                                    \
  do {                                                                            \
    if (!(condition)) [[unlikely]]                                                \
      ::stria::internal::CheckFailed(__FILE__, __LINE__, #condition);             \
  } while (0)
