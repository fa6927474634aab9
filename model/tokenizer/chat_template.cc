#include "model/tokenizer/chat_template.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/tokenizer/chat_template_source.h"
#include "model/tokenizer/utf8.h"

namespace stria {
namespace {

// What Python's str.strip() takes for space.
bool IsPythonSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Jinja's `trim`.
std::string_view Trim(std::string_view text) {
  size_t begin = text.size(), end = 0;  // around what is not space
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    if (!IsPythonSpace(c.code_point)) {
      begin = std::min(begin, at);
      end = at + c.length;
    }
    at += c.length;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

std::string_view TrimNewlines(std::string_view text, bool left, bool right) {
  while (left && text.starts_with('\n')) text.remove_prefix(1);
  while (right && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

constexpr std::string_view kThink = "<think>", kEndThink = "</think>";

// Qwen3's split of an answer: what comes after the last </think>, and the thought before the first.
struct Answer {
  std::string_view thought, content;
};

Answer SplitThought(std::string_view content) {
  const size_t first = content.find(kEndThink), last = content.rfind(kEndThink);
  if (first == std::string_view::npos) return {"", content};
  std::string_view thought = TrimNewlines(content.substr(0, first), false, true);
  if (const size_t begin = thought.rfind(kThink); begin != std::string_view::npos) {
    thought = thought.substr(begin + kThink.size());
  }
  return {TrimNewlines(thought, true, false), TrimNewlines(content.substr(last + kEndThink.size()), true, false)};
}

bool IsToolResponse(const std::string& content) {
  return content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
}

}  // namespace

// Ids under construction. Adjacent text is encoded as one, because words may cross the seams.
class ChatTemplate::Prompt {
 public:
  explicit Prompt(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void Text(std::string_view text) { text_ += text; }

  void Control(int32_t id) {
    EncodeText();
    ids_.push_back(id);
  }

  std::vector<int32_t> Finish() {
    EncodeText();
    return std::move(ids_);
  }

 private:
  void EncodeText() {
    const std::vector<int32_t> ids = tokenizer_.Encode(text_);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    text_.clear();
  }

  const Tokenizer& tokenizer_;
  std::string text_;
  std::vector<int32_t> ids_;
};

absl::StatusOr<ChatTemplate> ChatTemplate::Create(const Tokenizer& tokenizer) {
  return Create(tokenizer, tokenizer.chat_template());
}

absl::StatusOr<ChatTemplate> ChatTemplate::Create(const Tokenizer& tokenizer, std::string_view source) {
  STRIA_ASSIGN_OR_RETURN(RecognisedTemplate recognised, RecogniseTemplate(source));
  ChatTemplate result(tokenizer);
  result.family_ = recognised.family;
  result.default_system_ = std::move(recognised.default_system);
  result.date_ = std::move(recognised.date);

  const auto control = [&](const char* name, int32_t* id) {
    *id = tokenizer.NamedToken(name);
    return *id >= 0 ? absl::OkStatus()
                    : absl::InvalidArgumentError(absl::StrCat("tokenizer.chat_template uses ", name,
                                                              ", which is no control token of the vocabulary"));
  };
  if (result.family_ == Family::kLlama3 || result.family_ == Family::kLlama31) {
    STRIA_RETURN_IF_ERROR(control("<|start_header_id|>", &result.turn_begin_));
    STRIA_RETURN_IF_ERROR(control("<|end_header_id|>", &result.header_end_));
    STRIA_RETURN_IF_ERROR(control("<|eot_id|>", &result.turn_end_));
    if (tokenizer.bos() < 0) {
      return absl::InvalidArgumentError("tokenizer.chat_template uses bos_token, and there is no bos_token_id");
    }
  } else {
    STRIA_RETURN_IF_ERROR(control("<|im_start|>", &result.turn_begin_));
    STRIA_RETURN_IF_ERROR(control("<|im_end|>", &result.turn_end_));
  }
  return result;
}

absl::StatusOr<std::vector<int32_t>> ChatTemplate::Render(std::span<const ChatMessage> messages,
                                                          bool add_generation_prompt, bool enable_thinking) const {
  if (messages.empty()) return absl::InvalidArgumentError("messages: there are none");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      return absl::InvalidArgumentError(absl::StrCat("messages[", i, "].role: \"", ReplaceInvalidUtf8(role),
                                                     "\" is not supported (only system, user, assistant)"));
    }
  }

  Prompt prompt(*tokenizer_);
  switch (family_) {
    case Family::kChatMl:
    case Family::kQwen25: RenderChatMl(messages, &prompt); break;
    case Family::kQwen3: RenderQwen3(messages, &prompt); break;
    case Family::kLlama3:
    case Family::kLlama31: RenderLlama3(messages, &prompt); break;
  }
  if (add_generation_prompt) {
    prompt.Control(turn_begin_);
    prompt.Text("assistant");
    if (header_end_ >= 0) {
      prompt.Control(header_end_);
      prompt.Text("\n");
    }
    prompt.Text("\n");
    if (family_ == Family::kQwen3 && !enable_thinking) prompt.Text("<think>\n\n</think>\n\n");
  }
  return prompt.Finish();
}

void ChatTemplate::ChatMlTurn(std::string_view role, std::string_view content, Prompt* prompt) const {
  prompt->Control(turn_begin_);
  prompt->Text(role);
  prompt->Text("\n");
  prompt->Text(content);
  prompt->Control(turn_end_);
  prompt->Text("\n");
}

void ChatTemplate::RenderChatMl(std::span<const ChatMessage> messages, Prompt* prompt) const {
  if (default_system_ && messages[0].role != "system") ChatMlTurn("system", *default_system_, prompt);
  for (const ChatMessage& m : messages) ChatMlTurn(m.role, m.content, prompt);
}

void ChatTemplate::RenderQwen3(std::span<const ChatMessage> messages, Prompt* prompt) const {
  // Thoughts are kept only in answers after the last question. (A tool's response counts as no question.)
  size_t last_query = messages.size() - 1;
  for (size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role == "user" && !IsToolResponse(messages[i].content)) {
      last_query = i;
      break;
    }
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& m = messages[i];
    if (m.role != "assistant") {
      ChatMlTurn(m.role, m.content, prompt);
      continue;
    }
    const Answer answer = SplitThought(m.content);
    const bool last = i + 1 == messages.size();
    if (i > last_query && (last || !answer.thought.empty())) {
      ChatMlTurn(m.role,
                 absl::StrCat("<think>\n", std::string(TrimNewlines(answer.thought, true, true)), "\n</think>\n\n",
                              std::string(TrimNewlines(answer.content, true, false))),
                 prompt);
    } else {
      ChatMlTurn(m.role, answer.content, prompt);
    }
  }
}

void ChatTemplate::Llama3Turn(std::string_view role, std::string_view content, Prompt* prompt) const {
  prompt->Control(turn_begin_);
  prompt->Text(role);
  prompt->Control(header_end_);
  prompt->Text("\n\n");
  prompt->Text(content);
  prompt->Control(turn_end_);
}

void ChatTemplate::RenderLlama3(std::span<const ChatMessage> messages, Prompt* prompt) const {
  prompt->Control(tokenizer_->bos());
  if (family_ == Family::kLlama31) {
    std::string system = absl::StrCat("Cutting Knowledge Date: December 2023\nToday Date: ", date_, "\n\n");
    if (messages[0].role == "system") {
      system += Trim(messages[0].content);
      messages = messages.subspan(1);
    }
    Llama3Turn("system", system, prompt);
  }
  for (const ChatMessage& m : messages) Llama3Turn(m.role, Trim(m.content), prompt);
}

}  // namespace stria
