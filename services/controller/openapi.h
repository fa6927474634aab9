// The admin API's description, served at /openapi.json.
#pragma once

#include <nlohmann/json.hpp>

namespace stria {

// docs/openapi.json, with the schema of the settings filled in from their table.
nlohmann::json OpenApiDocument();

}  // namespace stria
