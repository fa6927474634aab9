// The API's keys: who may call it, under which name, and with which share of a crowded service.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sha256.h"

namespace stria {

// Holds digests, never the keys.
class ApiKeys {
 public:
  // One key a line: NAME KEY [SHARE], the share a positive number, 1 if absent. Names may repeat: two keys of one tenant, the last
  // share counts. Empty lines and lines that begin with # are skipped; a semicolon ends a line too, for environment variables.
  // InvalidArgument names the line and what is wrong with it, never the key.
  static absl::StatusOr<ApiKeys> Parse(std::string_view text);
  // A file without a key is an error: it would lock everybody out, or let everybody in.
  static absl::StatusOr<ApiKeys> ReadFile(const std::string& path);

  // Without keys everybody may call.
  bool empty() const { return entries_.empty(); }
  const std::map<std::string, double>& shares() const { return shares_; }

  // The name behind an Authorization header, "Bearer KEY"; "" without keys. The time taken depends on no key. Unauthenticated: no such
  // header, or a key that is unknown.
  absl::StatusOr<std::string> TenantOf(std::string_view authorization) const;

  static constexpr size_t kMinKeyBytes = 16;

 private:
  struct Entry {
    Sha256Digest digest;
    std::string name;
  };
  std::vector<Entry> entries_;
  std::map<std::string, double> shares_;  // by name
};

}  // namespace stria
