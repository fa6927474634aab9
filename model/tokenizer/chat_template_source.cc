#include "model/tokenizer/chat_template_source.h"

#include <span>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "model/tokenizer/utf8.h"

namespace stria {
namespace {

using Family = ChatTemplate::Family;

// In the patterns below `$` stands for a text that differs from model to model: no quote, no control token in it.
constexpr char kHole = '$';

// Short templates, whole.
struct WholeTemplate {
  Family family;
  std::string_view source;
};
constexpr WholeTemplate kWholeTemplates[] = {
    {Family::kChatMl,
     "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
     "{{ '<|im_start|>system\n$<|im_end|>\n' }}{% endif %}"
     "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"},
    {Family::kChatMl,
     "{% for message in messages %}"
     "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"},
    {Family::kLlama3,
     "{% set loop_messages = messages %}{% for message in loop_messages %}"
     "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + "
     "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"},
    // Meta's first edition always adds the generation prompt; a server always asks for it.
    {Family::kLlama3,
     "{% set loop_messages = messages %}{% for message in loop_messages %}"
     "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + "
     "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
     "{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"},
};

// Long templates, by all the parts that act on a conversation without tools; the parts for tools differ between
// editions and are not looked at. The last part ends the template.
struct PartialTemplate {
  Family family;
  std::span<const std::string_view> parts;
};
constexpr std::string_view kQwen25Parts[] = {
    "{%- else %}{%- if messages[0]['role'] == 'system' %}"
    "{{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}"
    "{%- else %}{{- '<|im_start|>system\n$<|im_end|>\n' }}{%- endif %}{%- endif %}{%- for message in messages %}",
    "{%- if (message.role == \"user\") or (message.role == \"system\" and not loop.first) or "
    "(message.role == \"assistant\" and not message.tool_calls) %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}{%- elif",
    "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}",
};
constexpr std::string_view kQwen3Parts[] = {
    "{%- else %}{%- if messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{%- endif %}{%- endif %}"
    "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}",
    "(message.role == \"user\") or (message.role == \"system\" and not loop.first) %}"
    "{{- '<|im_start|>' + message.role + '\n' + ",
    "{%- set reasoning_content = ",
    ".split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}",
    "{%- if loop.index0 > ns.last_query_index %}{%- if loop.last or (not loop.last and reasoning_content) %}"
    "{{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + "
    "content.lstrip('\n') }}{%- else %}{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}"
    "{%- else %}{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}",
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{%- endif %}",
};
constexpr std::string_view kLlama31Parts[] = {
    "{{- bos_token }}{%- if custom_tools is defined %}",
    "{%- set date_string = \"$\" %}{%- endif %}",
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}"
    "{%- set messages = messages[1:] %}{%- else %}{%- set system_message = \"\" %}{%- endif %}",
    "{{- \"<|start_header_id|>system<|end_header_id|>\n\n\" }}",
    "{{- \"Cutting Knowledge Date: December 2023\n\" }}{{- \"Today Date: \" + date_string + \"\n\n\" }}",
    "{{- system_message }}{{- \"<|eot_id|>\" }}",
    "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + "
    "'<|eot_id|>' }}",
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{%- endif %}",
};
constexpr PartialTemplate kPartialTemplates[] = {
    {Family::kQwen25, kQwen25Parts}, {Family::kQwen3, kQwen3Parts}, {Family::kLlama31, kLlama31Parts}};

// Brings the ways to write one template together: newlines escaped or not, and the space before a tag that strips it.
std::string Canonical(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source.substr(i, 2) == "\\n") {
      out += '\n';
      ++i;
    } else if (source.substr(i, 2) == "{#") {  // a comment; those of the supported templates strip space on the left
      const size_t end = source.find("#}", i);
      if (end == std::string_view::npos) break;
      i = end + 1;
    } else {
      if (source.substr(i, 3) == "{%-" || source.substr(i, 3) == "{{-") {
        while (!out.empty() && (out.back() == ' ' || out.back() == '\n')) out.pop_back();
      }
      out += source[i];
    }
  }
  while (!out.empty() && (out.back() == ' ' || out.back() == '\n')) out.pop_back();
  return out;
}

// Where `pattern` matches `text` at `at`, with the hole's text; npos if it does not.
size_t MatchAt(std::string_view text, size_t at, std::string_view pattern, std::string* hole) {
  for (size_t p = 0; p < pattern.size(); ++p) {
    if (pattern[p] != kHole) {
      if (at == text.size() || text[at++] != pattern[p]) return std::string_view::npos;
      continue;
    }
    const size_t end = text.find(pattern.substr(p + 1, 1), at);
    if (end == std::string_view::npos) return end;
    const std::string_view filling = text.substr(at, end - at);
    if (filling.find_first_of("'\"{}<>\\") != std::string_view::npos) return std::string_view::npos;
    *hole = std::string(filling);
    at = end;
  }
  return at;
}

// The same anywhere in the text.
bool Contains(std::string_view text, std::string_view pattern, std::string* hole) {
  const std::string_view prefix = pattern.substr(0, pattern.find(kHole));
  for (size_t at = text.find(prefix); at != std::string_view::npos; at = text.find(prefix, at + 1)) {
    if (MatchAt(text, at, pattern, hole) != std::string_view::npos) return true;
  }
  return false;
}

RecognisedTemplate Result(Family family, const std::string& hole, bool has_hole) {
  RecognisedTemplate found{family, std::nullopt, ""};
  if (family == Family::kLlama31) {
    found.date = hole;
  } else if (has_hole) {
    found.default_system = hole;
  }
  return found;
}

}  // namespace

absl::StatusOr<RecognisedTemplate> RecogniseTemplate(std::string_view source) {
  if (source.empty()) return absl::UnimplementedError("tokenizer.chat_template: the model has no chat template");
  const std::string text = Canonical(source);
  for (const WholeTemplate& t : kWholeTemplates) {
    std::string hole;
    if (MatchAt(text, 0, t.source, &hole) == text.size()) {
      return Result(t.family, hole, t.source.find(kHole) != std::string_view::npos);
    }
  }
  for (const PartialTemplate& t : kPartialTemplates) {
    std::string hole;
    bool all = true, has_hole = false;
    for (const std::string_view part : t.parts) {
      all = all && Contains(text, part, &hole);
      has_hole = has_hole || part.find(kHole) != std::string_view::npos;
    }
    // The last part is the end of the template.
    if (all && text.ends_with(t.parts.back())) return Result(t.family, hole, has_hole);
  }
  constexpr size_t kShown = 100;
  return absl::UnimplementedError(absl::StrCat(
      "tokenizer.chat_template is none of the supported ones (SmolLM2, ChatML, Qwen2, Qwen2.5, Qwen3, Llama 3, 3.1): \"",
      absl::CHexEscape(std::string(source.substr(0, kShown))), source.size() > kShown ? "...\"" : "\""));
}

}  // namespace stria
