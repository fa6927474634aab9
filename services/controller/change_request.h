// The body of a request that changes settings, or says what a change would do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "controller/settings.h"

namespace stria {

// Settings by name beside the fields that are about the change itself.
struct ChangeRequest {
  nlohmann::json settings = nlohmann::json::object();
  std::optional<uint64_t> check_revision;
  std::string who, reason;
  bool dry_run = false;
  bool replace = false;  // a setting of several parts (pins) becomes what is given; otherwise only the named parts change
};

// An empty body is an empty change. InvalidArgument names field and value; the settings are not looked at.
absl::StatusOr<ChangeRequest> ParseChange(const std::string& body);

// `base` after the change. InvalidArgument names the setting and its bounds.
absl::StatusOr<Settings> Apply(const ChangeRequest& change, const Settings& base);

}  // namespace stria
