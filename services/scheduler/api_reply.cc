#include "services/scheduler/api_reply.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "model/tokenizer/utf8.h"
#include "services/common/http_error.h"

namespace stria {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// JSON has no infinities; nothing below this matters to anyone.
void AppendLogprob(float logprob, std::string* out) {
  absl::StrAppendFormat(out, "%.7g", std::isfinite(logprob) ? std::clamp(logprob, -9999.0f, 0.0f) : -9999.0f);
}

void AppendFigure(const char* name, double value, std::string* out) {
  if (std::isfinite(value)) {
    absl::StrAppendFormat(out, "\"%s\":%.6g", name, value);
  } else {
    absl::StrAppend(out, "\"", name, "\":null");
  }
}

void AppendTokenText(std::string_view bytes, std::string* out) { AppendJsonString(ReplaceInvalidUtf8(bytes), out); }

void AppendBytes(std::string_view bytes, std::string* out) {
  *out += '[';
  for (size_t i = 0; i < bytes.size(); ++i) absl::StrAppend(out, i > 0 ? "," : "", static_cast<unsigned char>(bytes[i]));
  *out += ']';
}

// {"token", "logprob", "bytes"} without the closing brace.
void AppendChatToken(std::string_view bytes, float logprob, std::string* out) {
  *out += "{\"token\":";
  AppendTokenText(bytes, out);
  *out += ",\"logprob\":";
  AppendLogprob(logprob, out);
  *out += ",\"bytes\":";
  AppendBytes(bytes, out);
}

void AppendChatLogprobs(const std::vector<ScoredToken>& tokens, std::string* out) {
  *out += "{\"content\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) *out += ',';
    AppendChatToken(tokens[i].bytes, tokens[i].logprob, out);
    *out += ",\"top_logprobs\":[";
    for (size_t k = 0; k < tokens[i].top.size(); ++k) {
      if (k > 0) *out += ',';
      AppendChatToken(tokens[i].top[k].first, tokens[i].top[k].second, out);
      *out += '}';
    }
    *out += "]}";
  }
  *out += "],\"refusal\":null}";
}

// The older form: parallel lists. Tokens whose texts are equal share a name in `top_logprobs`; the better one keeps it.
void AppendTextLogprobs(const std::vector<ScoredToken>& tokens, size_t offset, bool with_top, std::string* out) {
  std::string names, logprobs, tops, offsets;
  for (const ScoredToken& token : tokens) {
    const char* comma = names.empty() ? "" : ",";
    absl::StrAppend(&names, comma);
    AppendTokenText(token.bytes, &names);
    absl::StrAppend(&logprobs, comma);
    AppendLogprob(token.logprob, &logprobs);
    absl::StrAppend(&offsets, comma, offset);
    offset += CountCharacters(ReplaceInvalidUtf8(token.bytes));
    absl::StrAppend(&tops, comma, "{");
    std::vector<std::string> seen;
    for (const auto& [bytes, logprob] : token.top) {
      std::string name;
      AppendTokenText(bytes, &name);
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
      absl::StrAppend(&tops, seen.empty() ? "" : ",", name, ":");
      AppendLogprob(logprob, &tops);
      seen.push_back(std::move(name));
    }
    tops += '}';
  }
  absl::StrAppend(out, "{\"tokens\":[", names, "],\"token_logprobs\":[", logprobs, "],\"top_logprobs\":");
  absl::StrAppend(out, with_top ? absl::StrCat("[", tops, "]") : "null", ",\"text_offset\":[", offsets, "]}");
}

}  // namespace

size_t CountCharacters(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

void AppendJsonString(std::string_view utf8, std::string* out) {
  *out += '"';
  size_t plain = 0;  // start of the run that needs no escape
  for (size_t i = 0; i < utf8.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(utf8[i]);
    if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) continue;
    out->append(utf8, plain, i - plain);
    plain = i + 1;
    switch (c) {
      case '"': *out += "\\\""; break;
      case '\\': *out += "\\\\"; break;
      case '\n': *out += "\\n"; break;
      case '\r': *out += "\\r"; break;
      case '\t': *out += "\\t"; break;
      default: absl::StrAppendFormat(out, "\\u%04x", c);
    }
  }
  out->append(utf8, plain, utf8.size() - plain);
  *out += '"';
}

void PlanFigures::Add(const KvChoice& choice, uint32_t prompt_tokens) {
  const std::string text = choice.Describe();
  if (std::find(texts_.begin(), texts_.end(), text) == texts_.end()) texts_.push_back(text);
  const double kept = prompt_tokens * choice.KeptShare(prompt_tokens);
  const std::optional<double> representation = choice.Representation();
  tokens_ += prompt_tokens;
  kept_ += kept;
  known_ &= representation.has_value();
  cost_ += kept / representation.value_or(1);
  widened_ |= choice.mode == KvChoice::Mode::kKaizen && choice.widen.value_or(false);
}

std::string PlanFigures::text() const { return absl::StrJoin(texts_, "; "); }

double PlanFigures::kept_share() const { return tokens_ > 0 ? kept_ / tokens_ : 1; }

std::optional<double> PlanFigures::representation() const {
  return known_ && cost_ > 0 ? std::optional(kept_ / cost_) : std::nullopt;
}

void KvTotals::Add(const KvUsage& kv) {
  if (kv.tokens == 0 || kv.bits_per_element <= 0) return;
  const double elements = static_cast<double>(kv.bytes) * 8 / kv.bits_per_element;
  bytes_ += kv.bytes;
  tokens_ += kv.tokens;
  fp16_bytes_ += kv.fp16_bytes;
  elements_ += elements;
  payload_bits_ += kv.payload_bits * elements;
  guard_bits_ += kv.guard_bits * elements;
}

void KvTotals::AppendFields(const PlanFigures& plan, std::string* out) const {
  const double payload = payload_bits_ / elements_;
  AppendFigure("kv_plan_ratio", plan.representation().value_or(16.0 / payload) / plan.kept_share(), out);
  absl::StrAppend(out, ",\"kv_bytes\":", bytes_, ",\"kv_tokens\":", tokens_, ",");
  AppendFigure("kv_bits_per_element", static_cast<double>(bytes_) * 8 / elements_, out);
  *out += ',';
  AppendFigure("kv_ratio", static_cast<double>(fp16_bytes_) / static_cast<double>(bytes_), out);
  *out += ',';
  AppendFigure("kv_payload_bits", payload, out);
  if (plan.widened()) {
    *out += ',';
    AppendFigure("kv_ratio_missed", guard_bits_ / payload_bits_, out);
  }
  absl::StrAppend(out, ",\"kv_plan\":\"", plan.text(), "\"");
}

void AppendUsageJson(const Usage& usage, std::string* out) {
  absl::StrAppend(out, "{\"prompt_tokens\":", usage.prompt_tokens, ",\"completion_tokens\":", usage.completion_tokens,
                  ",\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens, ",\"prompt_tokens_details\":{\"cached_tokens\":",
                  usage.cached_tokens, "},");
  usage.kv.AppendFields(usage.plan, out);
  *out += '}';
}

ReplyFormat::ReplyFormat(ReplyKind kind, std::string id, int64_t created, std::string model, std::string fingerprint,
                         bool include_usage, bool logprobs, int top_logprobs)
    : kind_(kind), include_usage_(include_usage), logprobs_(logprobs), top_logprobs_(top_logprobs) {
  std::string tail = absl::StrCat(",\"created\":", created, ",\"model\":");
  AppendJsonString(model, &tail);
  tail += ",\"system_fingerprint\":";
  AppendJsonString(fingerprint, &tail);
  tail += ",\"choices\":[";
  const std::string start = absl::StrCat("{\"id\":\"", id, "\",\"object\":\"");
  const char* whole = kind == ReplyKind::kChat ? "chat.completion\"" : "text_completion\"";
  const char* piece = kind == ReplyKind::kChat ? "chat.completion.chunk\"" : "text_completion\"";
  head_ = absl::StrCat(start, whole, tail);
  event_ = absl::StrCat("data: ", start, piece, tail);
}

void ReplyFormat::AppendEvent(size_t index, std::string_view content, std::string_view logprobs, std::string_view finish,
                              std::string* out) const {
  absl::StrAppend(out, event_, "{\"index\":", index, ",", View(content), ",\"logprobs\":", View(logprobs), ",\"finish_reason\":",
                  View(finish), "}]", include_usage_ ? ",\"usage\":null" : "", "}\n\n");
}

void ReplyFormat::AppendRole(size_t index, std::string* out) const {
  AppendEvent(index, R"("delta":{"role":"assistant","content":""})", "null", "null", out);
}

void ReplyFormat::AppendDelta(size_t index, std::string_view text, const std::vector<ScoredToken>& logprobs, size_t offset,
                              std::string* out) const {
  std::string content = kind_ == ReplyKind::kChat ? "\"delta\":{\"content\":" : "\"text\":";
  AppendJsonString(text, &content);
  if (kind_ == ReplyKind::kChat) content += '}';
  std::string scores = "null";
  if (logprobs_) {
    scores.clear();
    AppendLogprobs(logprobs, offset, &scores);
  }
  AppendEvent(index, content, scores, "null", out);
}

void ReplyFormat::AppendFinish(size_t index, std::string_view reason, std::string* out) const {
  AppendEvent(index, kind_ == ReplyKind::kChat ? "\"delta\":{}" : "\"text\":\"\"", "null", absl::StrCat("\"", View(reason), "\""), out);
}

void ReplyFormat::AppendUsage(const Usage& usage, std::string* out) const {
  absl::StrAppend(out, event_, "],\"usage\":");
  AppendUsageJson(usage, out);
  *out += "}\n\n";
}

void ReplyFormat::AppendDone(std::string* out) { *out += "data: [DONE]\n\n"; }

void ReplyFormat::AppendError(const ApiError& error, std::string* out) {
  absl::StrAppend(out, "data: ", ErrorJson(error.status, error.message, "", error.param, error.code), "\n\n");
}

void ReplyFormat::AppendLogprobs(const std::vector<ScoredToken>& tokens, size_t offset, std::string* out) const {
  if (kind_ == ReplyKind::kChat) {
    AppendChatLogprobs(tokens, out);
  } else {
    AppendTextLogprobs(tokens, offset, top_logprobs_ > 0, out);
  }
}

std::string ReplyFormat::Whole(const std::vector<Answer>& answers, const Usage& usage) const {
  std::string out = head_;
  for (size_t i = 0; i < answers.size(); ++i) {
    const Answer& answer = answers[i];
    absl::StrAppend(&out, i > 0 ? "," : "", "{\"index\":", i);
    out += kind_ == ReplyKind::kChat ? ",\"message\":{\"role\":\"assistant\",\"content\":" : ",\"text\":";
    AppendJsonString(answer.text, &out);
    if (kind_ == ReplyKind::kChat) out += ",\"refusal\":null}";
    out += ",\"logprobs\":";
    if (logprobs_) {
      AppendLogprobs(answer.logprobs, 0, &out);
    } else {
      out += "null";
    }
    absl::StrAppend(&out, ",\"finish_reason\":\"", answer.finish_reason, "\"}");
  }
  out += "],\"usage\":";
  AppendUsageJson(usage, &out);
  out += '}';
  return out;
}

}  // namespace stria
