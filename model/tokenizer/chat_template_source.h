// Recognises the Jinja sources of chat templates.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/tokenizer/chat_template.h"

namespace stria {

struct RecognisedTemplate {
  ChatTemplate::Family family;
  std::optional<std::string> default_system;
  std::string date;  // kLlama31
};

// Unimplemented, with the beginning of the source, if it is no known template.
absl::StatusOr<RecognisedTemplate> RecogniseTemplate(std::string_view source);

}  // namespace stria
