#include "eval/texts.h"

#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace stria {
namespace {

using Json = nlohmann::json;

// `render` gives a line's text, empty if the line has not the right fields.
absl::StatusOr<std::vector<std::string>> Read(const std::string& path, size_t count, size_t bytes,
                                              const std::function<std::string(const Json&)>& render) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::vector<std::string> texts;
  std::string line, text;
  for (int number = 1; texts.size() < count && std::getline(file, line); ++number) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const std::string part = json.is_object() ? render(json) : "";
    if (part.empty())
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": not a line of this data set"));
    text += part;
    if (text.size() < bytes) continue;
    texts.push_back(std::move(text));
    text.clear();
  }
  if (texts.size() < count)
    return absl::InvalidArgumentError(
        absl::StrCat(path, " holds ", texts.size(), " texts of ", bytes, " bytes, not ", count));
  return texts;
}

std::string Field(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadGsm8k(const std::string& path, size_t count, size_t bytes) {
  return Read(path, count, bytes, [](const Json& json) {
    const std::string question = Field(json, "question"), answer = Field(json, "answer");
    return question.empty() || answer.empty()
               ? ""
               : absl::StrCat("Question: ", question, "\nAnswer: ", answer, "\n\n");
  });
}

absl::StatusOr<std::vector<std::string>> ReadDialogues(const std::string& path, size_t count, size_t bytes) {
  return Read(path, count, bytes, [](const Json& json) {
    std::string text;
    const auto messages = json.find("messages");
    if (messages == json.end() || !messages->is_array()) return text;
    for (const Json& message : *messages)
      if (message.is_object())
        absl::StrAppend(&text, Field(message, "role"), ": ", Field(message, "content"), "\n\n");
    return text;
  });
}

}  // namespace stria
