#include "services/controller/openapi.h"

#include <string>
#include <string_view>

#include "base/check.h"
#include "controller/settings.h"
#include "services/controller/openapi_text.h"
#include "services/controller/state_json.h"

namespace stria {
namespace {

using nlohmann::json;

json SchemaOf(const SettingField& field, const json& otherwise) {
  json schema = {{"description", field.meaning}, {"default", otherwise}};
  switch (field.type) {
    case SettingField::Type::kBool: schema["type"] = "boolean"; return schema;
    case SettingField::Type::kInteger: schema["type"] = "integer"; break;
    case SettingField::Type::kNumber: schema["type"] = "number"; break;
    case SettingField::Type::kChoice:
      schema["type"] = "string";
      for (const std::string_view choice : field.choices) schema["enum"].push_back(choice);
      return schema;
  }
  schema["minimum"] = field.min;
  schema["maximum"] = field.max;
  return schema;
}

}  // namespace

json OpenApiDocument() {
  json document = json::parse(kOpenApiText, nullptr, false);
  STRIA_CHECK(document.is_object());
  json& properties = document["components"]["schemas"]["Settings"]["properties"];
  const json defaults = ToJson(Settings{});
  for (const SettingField& field : SettingFields()) {
    const std::string name(field.name);
    properties[name] = SchemaOf(field, defaults.at(name));
  }
  return document;
}

}  // namespace stria
