// Who may call an HTTP API: bearer tokens, each with a name for the record and a role.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sha256.h"

namespace stria {

enum class Role { kViewer, kOperator };  // an operator may do all that a viewer may

struct Caller {
  std::string name;
  Role role = Role::kViewer;
};

// Holds digests, never the tokens.
class TokenTable {
 public:
  // One token a line: ROLE NAME TOKEN, where ROLE is viewer or operator; lines that are empty or begin with # are skipped. A semicolon
  // ends a line too, for environment variables. InvalidArgument names the line and what is wrong with it, never the token.
  static absl::StatusOr<TokenTable> Parse(std::string_view text);
  // The file at `path`; NotFound when it cannot be read. A file that holds no token is InvalidArgument: it would lock everybody out.
  static absl::StatusOr<TokenTable> ReadFile(const std::string& path);

  bool empty() const { return entries_.empty(); }

  // The caller behind an Authorization header, "Bearer TOKEN". The time taken depends on no token. Unauthenticated: no such header, or a
  // token that is unknown.
  absl::StatusOr<Caller> Identify(std::string_view authorization) const;

  static constexpr size_t kMinTokenBytes = 16;

 private:
  struct Entry {
    Sha256Digest digest;
    Caller caller;
  };
  std::vector<Entry> entries_;
};

}  // namespace stria
