// Who may call a service's HTTP: probes and metrics everybody, the rest who shows a secret. Here are the tokens of operators, each with a
// name for the record and a role; clients' API keys are in services/scheduler/api_keys.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/bearer.h"
#include "services/common/http_server.h"

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
  // LoadSecrets of the file at `path` or of the environment's `variable`.
  static absl::StatusOr<TokenTable> Load(const std::string& path, const char* variable);

  bool empty() const { return secrets_.empty(); }

  // The caller behind an Authorization header, as BearerSecrets::OwnerOf.
  absl::StatusOr<Caller> Identify(std::string_view authorization) const;

 private:
  static constexpr char kNoun[] = "token";

  BearerSecrets secrets_{kNoun};
  std::map<std::string, Role> roles_;  // by name
};

// Whether a path is open to everybody on every service: /health, /ready, /live, /metrics. They hold no user's data, and what reads
// them seldom holds a secret.
bool IsOpenPath(std::string_view path);

// Everything but the open paths wants a known token: reading a viewer's, the rest an operator's. A path in `readings` only reads, whatever
// its method. Without tokens everybody may call. `tokens` outlives the guard.
HttpGuard TokenGuard(const TokenTable& tokens, std::vector<std::string> readings = {});

// Off loopback HTTP wants secrets, unless the operator said --insecure. InvalidArgument: `bind` is no IP address. PermissionDenied: no
// secrets; the message names `secrets_flag`, which would give some.
absl::Status CheckHttpBind(const std::string& bind, bool has_secrets, bool insecure, std::string_view secrets_flag);

}  // namespace stria
