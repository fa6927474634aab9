// Who may call an HTTP API: bearer tokens, each with a name for the record and a role.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/bearer.h"

namespace stria {

enum class Role { kViewer, kOperator };  // an operator may do all that a viewer may

struct Caller {
  std::string name;
  Role role = Role::kViewer;
};

class TokenTable {
 public:
  // One token a line (ForEachSecretLine): ROLE NAME TOKEN, where ROLE is viewer or operator; a name has one role. InvalidArgument names
  // the line and what is wrong with it, never the token.
  static absl::StatusOr<TokenTable> Parse(std::string_view text);
  // The file at `path`; NotFound when it cannot be read. A file that holds no token is InvalidArgument: it would lock everybody out.
  static absl::StatusOr<TokenTable> ReadFile(const std::string& path);

  bool empty() const { return secrets_.empty(); }

  // The caller behind an Authorization header, as BearerSecrets::OwnerOf.
  absl::StatusOr<Caller> Identify(std::string_view authorization) const;

 private:
  static constexpr char kNoun[] = "token";

  BearerSecrets secrets_{kNoun};
  std::map<std::string, Role> roles_;  // by name
};

}  // namespace stria
