// JSON and YAML texts.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"

namespace stria {

// A JSON or YAML text (every JSON text is YAML too) as JSON. Plain scalars are null, booleans and numbers where they look like it; quoted
// ones are strings. InvalidArgument says where the text is wrong; aliases and several documents are refused.
absl::StatusOr<nlohmann::json> ParseDocument(const std::string& text);

// Block style, keys in the object's order, strings quoted where a reader could take them for something else. Ends with a newline.
std::string ToYaml(const nlohmann::json& value);

// One line of JSON; bytes that are not UTF-8 are replaced.
std::string Compact(const nlohmann::json& value);

}  // namespace stria
