// Conversations as prompts, for the chat templates of the supported families.
//
// GGUF files carry a template as a Jinja program. It is recognised, not run: what it does for plain conversations (no
// tools) is built in, and a template that is not recognised is an error at start rather than a prompt that is almost
// right. Control tokens go in as ids and message text as text, so no message can forge a turn.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/tokenizer.h"

namespace stria {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

class ChatTemplate {
 public:
  enum class Family {
    kChatMl,    // SmolLM2, Qwen1.5, Qwen2, plain ChatML
    kQwen25,    // the same for plain conversations, recognised by its parts
    kQwen3,     // thoughts of earlier answers are left out; thinking can be turned off
    kLlama3,    // headers, contents trimmed
    kLlama31,   // as Llama 3, with a system turn that states dates (3.1, 3.2, 3.3)
  };

  // From `tokenizer.chat_template()`. Unimplemented if that is none of the families', InvalidArgument if the vocabulary
  // lacks its control tokens. `tokenizer` must outlive the result.
  static absl::StatusOr<ChatTemplate> Create(const Tokenizer& tokenizer);
  // The same from another source.
  static absl::StatusOr<ChatTemplate> Create(const Tokenizer& tokenizer, std::string_view source);

  // The ids of the conversation; with `add_generation_prompt` also the beginning of the answer. `enable_thinking` is
  // Qwen3's switch, the others ignore it. InvalidArgument without messages or with another role. "Today" in Llama 3.1's
  // system turn is the template's own default date, so that prompts stay the same from day to day.
  absl::StatusOr<std::vector<int32_t>> Render(std::span<const ChatMessage> messages, bool add_generation_prompt,
                                              bool enable_thinking = true) const;

  Family family() const { return family_; }
  // Spoken for the user when a conversation begins without a system message.
  const std::optional<std::string>& default_system() const { return default_system_; }

 private:
  class Prompt;

  explicit ChatTemplate(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  void RenderChatMl(std::span<const ChatMessage> messages, Prompt* prompt) const;
  void RenderQwen3(std::span<const ChatMessage> messages, Prompt* prompt) const;
  void RenderLlama3(std::span<const ChatMessage> messages, Prompt* prompt) const;
  void ChatMlTurn(std::string_view role, std::string_view content, Prompt* prompt) const;
  void Llama3Turn(std::string_view role, std::string_view content, Prompt* prompt) const;

  const Tokenizer* tokenizer_;
  Family family_ = Family::kChatMl;
  std::optional<std::string> default_system_;
  std::string date_;        // kLlama31
  int32_t turn_begin_ = -1;   // <|im_start|>, <|start_header_id|>
  int32_t header_end_ = -1;   // <|end_header_id|>
  int32_t turn_end_ = -1;     // <|im_end|>, <|eot_id|>
};

}  // namespace stria
