#include "services/ctl/document.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include <yaml-cpp/yaml.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace stria {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 32;

json Scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  if (text == "true" || text == "false") return text == "true";
  if (text.empty() || text == "~" || text == "null") return nullptr;
  int64_t whole = 0;
  if (absl::SimpleAtoi(text, &whole)) return whole;
  double number = 0;
  if (absl::SimpleAtod(text, &number) && std::isfinite(number)) return number;
  return text;
}

// Throws YAML::Exception, as yaml-cpp does; ParseDocument turns it into a Status.
json FromYaml(const YAML::Node& node, int depth) {
  if (depth > kMaxDepth) throw YAML::Exception(node.Mark(), "nested too deeply");
  switch (node.Type()) {
    case YAML::NodeType::Sequence: {
      json list = json::array();
      for (const YAML::Node& part : node) list.push_back(FromYaml(part, depth + 1));
      return list;
    }
    case YAML::NodeType::Map: {
      json object = json::object();
      for (const auto& part : node) {
        const std::string& key = part.first.Scalar();
        if (!part.first.IsScalar() || object.contains(key)) {
          throw YAML::Exception(part.first.Mark(), part.first.IsScalar() ? "the key '" + key + "' comes twice" : "a key that is no text");
        }
        object[key] = FromYaml(part.second, depth + 1);
      }
      return object;
    }
    case YAML::NodeType::Scalar: return Scalar(node);
    default: return nullptr;
  }
}

// Whether a reader of YAML takes the bare text for the same string.
bool PlainIsSafe(const std::string& text) {
  if (text.empty() || !std::isalpha(static_cast<unsigned char>(text[0]))) return false;
  const bool tame = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/' || c == '@';
  });
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* special : {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity"}) {
    if (lower == special) return false;
  }
  return tame;
}

std::string ScalarText(const json& value) {
  if (value.is_string() && PlainIsSafe(value.get_ref<const std::string&>())) return value.get<std::string>();
  return Compact(value);
}

void Append(const json& value, const std::string& indent, bool after_dash, std::string& text) {
  if (!value.is_structured() || value.empty()) {
    text += (text.empty() || text.back() == '\n' || after_dash ? "" : " ") + ScalarText(value) + "\n";
    return;
  }
  bool first = after_dash;  // the first line of an object in a list stands beside its dash
  if (!first && !text.empty() && text.back() != '\n') text += "\n";
  if (value.is_array()) {
    if (after_dash) text += "\n", first = false;
    for (const json& part : value) {
      text += indent + "- ";
      Append(part, indent + "  ", true, text);
    }
    return;
  }
  for (const auto& [name, part] : value.items()) {
    text += (first ? "" : indent) + ScalarText(json(name)) + ":";
    first = false;
    Append(part, indent + "  ", false, text);
  }
}

}  // namespace

absl::StatusOr<json> ParseDocument(const std::string& text) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat(documents.size(), " documents; exactly one is wanted"));
    }
    return FromYaml(documents[0], 0);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("line ", error.mark.line + 1, ": ", error.msg));
  }
}

std::string ToYaml(const json& value) {
  std::string text;
  Append(value, "", false, text);
  return text;
}

std::string Compact(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace stria
