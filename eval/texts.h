// The texts that quality is measured on, as they lie in JSON-lines files.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stria {

// GSM8K lines (`question`, `answer`) joined into texts of at least `bytes` bytes each, in file order, until
// `count` are full. Errors name the file and the line.
absl::StatusOr<std::vector<std::string>> ReadGsm8k(const std::string& path, size_t count, size_t bytes);

// τ-bench dialogues (`messages` with `role` and `content`), joined likewise.
absl::StatusOr<std::vector<std::string>> ReadDialogues(const std::string& path, size_t count, size_t bytes);

}  // namespace stria
