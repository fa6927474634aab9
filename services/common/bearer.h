// Secrets that callers show as "Authorization: Bearer SECRET": read from lines of text, kept as digests, compared in constant time.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sha256.h"

namespace stria {

class BearerSecrets {
 public:
  static constexpr size_t kMinBytes = 16;

  // `noun` names a secret in messages, "API key"; no message holds a secret.
  explicit BearerSecrets(std::string noun) : noun_(std::move(noun)) {}

  bool empty() const { return entries_.empty(); }

  // InvalidArgument: shorter than kMinBytes, or there already, and whose it is.
  absl::Status Add(std::string_view secret, std::string owner);

  // The owner behind an Authorization header. The time taken depends on no secret. Unauthenticated: no such header, or an unknown secret.
  absl::StatusOr<std::string> OwnerOf(std::string_view authorization) const;

 private:
  struct Entry {
    Sha256Digest digest;
    std::string owner;
  };
  std::string noun_;
  std::vector<Entry> entries_;
};

// Calls `add` with the words of each line of `text` that has any and does not begin with #; a semicolon ends a line too, for
// environment variables. The first error, with `noun` and the line's number before it.
absl::Status ForEachSecretLine(std::string_view text, std::string_view noun,
                               absl::FunctionRef<absl::Status(const std::vector<std::string>& words)> add);

// The text of a file. NotFound when it cannot be read.
absl::StatusOr<std::string> ReadSecretsFile(const std::string& path, std::string_view noun);

// What `parse` makes of the file at `path`, or without one of the environment's `variable`, errors with the source before them; an empty
// table where neither is given. A source without a secret is InvalidArgument: it would lock everybody out, or let everybody in.
template <typename Table>
absl::StatusOr<Table> LoadSecrets(const std::string& path, const char* variable, std::string_view noun,
                                  absl::StatusOr<Table> (*parse)(std::string_view)) {
  const char* value = path.empty() ? std::getenv(variable) : nullptr;
  if (path.empty() && value == nullptr) return Table();
  const absl::StatusOr<std::string> text = path.empty() ? absl::StatusOr<std::string>(value) : ReadSecretsFile(path, noun);
  if (!text.ok()) return text.status();
  const std::string source = path.empty() ? variable : path;
  absl::StatusOr<Table> table = parse(*text);
  if (!table.ok()) return absl::InvalidArgumentError(source + ": " + std::string(table.status().message()));
  if (table->empty()) return absl::InvalidArgumentError(source + " holds no " + std::string(noun));
  return table;
}

}  // namespace stria
