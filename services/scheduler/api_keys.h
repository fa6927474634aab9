// The API's keys: who may call it, under which name, and with which share of a crowded service.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/bearer.h"

namespace stria {

class ApiKeys {
 public:
  // One key a line (ForEachSecretLine): NAME KEY [SHARE], the share a positive number, 1 if absent. Names may repeat: two keys of one
  // tenant, the last share counts. InvalidArgument names the line and what is wrong with it, never the key.
  static absl::StatusOr<ApiKeys> Parse(std::string_view text);
  // LoadSecrets of the file at `path` or of the environment's `variable`.
  static absl::StatusOr<ApiKeys> Load(const std::string& path, const char* variable);

  // Without keys everybody may call.
  bool empty() const { return secrets_.empty(); }
  const std::map<std::string, double>& shares() const { return shares_; }

  // The name behind an Authorization header, as BearerSecrets::OwnerOf; "" without keys.
  absl::StatusOr<std::string> TenantOf(std::string_view authorization) const;

 private:
  static constexpr char kNoun[] = "API key";

  BearerSecrets secrets_{kNoun};
  std::map<std::string, double> shares_;  // by name
};

}  // namespace stria
