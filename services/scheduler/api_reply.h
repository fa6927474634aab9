// Replies in OpenAI's JSON, whole and as server-sent events. Streams are written by hand into one string: at a few thousand
// tokens a second a JSON tree for each would cost more than everything else here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/sequences.h"
#include "services/scheduler/api_request.h"

namespace stria {

// One token with its log-probability, as bytes (not necessarily UTF-8 alone).
struct ScoredToken {
  std::string bytes;
  float logprob = 0;
  std::vector<std::pair<std::string, float>> top;
};

// What was asked of the cache for all prompts of a request.
class PlanFigures {
 public:
  void Add(const KvChoice& choice, uint32_t prompt_tokens);  // one prompt's; a `kaizen` choice as it was composed
  std::string text() const;                                  // what differs, each once
  double kept_share() const;                                 // of the prompts' tokens
  std::optional<double> representation() const;              // nullopt: `auto`, or no prompt
  bool widened() const { return widened_; }

 private:
  std::vector<std::string> texts_;
  double tokens_ = 0, kept_ = 0, cost_ = 0;  // cost_: kept tokens over what representation makes of them
  bool known_ = true, widened_ = false;
};

// What sequences held in the cache at their end, added up.
class KvTotals {
 public:
  void Add(const KvUsage& kv);
  uint64_t bytes() const { return bytes_; }
  // Appends `"kv_bytes": …` and the other kv_ fields, without braces. A figure that has no meaning (nothing held) is null.
  void AppendFields(const PlanFigures& plan, std::string* out) const;

 private:
  uint64_t bytes_ = 0, fp16_bytes_ = 0, tokens_ = 0;
  double elements_ = 0, payload_bits_ = 0, guard_bits_ = 0;  // bits summed over elements
};

struct Usage {
  uint64_t prompt_tokens = 0, completion_tokens = 0;
  uint64_t cached_tokens = 0;  // of the prompts, not computed
  KvTotals kv;
  PlanFigures plan;
};

struct Answer {
  std::string text;
  std::vector<ScoredToken> logprobs;
  std::string finish_reason;  // "stop", "length"
};

enum class ReplyKind { kChat, kCompletion };

class ReplyFormat {
 public:
  // `logprobs`: whether the request asked for them.
  ReplyFormat(ReplyKind kind, std::string id, int64_t created, std::string model, std::string fingerprint, bool include_usage,
              bool logprobs, int top_logprobs);

  ReplyKind kind() const { return kind_; }

  // Server-sent events, appended to *out. `offset`: characters of the answer before this piece (text completions show it).
  void AppendRole(size_t index, std::string* out) const;  // chat's first event
  void AppendDelta(size_t index, std::string_view text, const std::vector<ScoredToken>& logprobs, size_t offset, std::string* out) const;
  void AppendFinish(size_t index, std::string_view reason, std::string* out) const;
  void AppendUsage(const Usage& usage, std::string* out) const;
  static void AppendDone(std::string* out);
  static void AppendError(const ApiError& error, std::string* out);

  std::string Whole(const std::vector<Answer>& answers, const Usage& usage) const;

 private:
  void AppendEvent(size_t index, std::string_view content, std::string_view logprobs, std::string_view finish, std::string* out) const;
  void AppendLogprobs(const std::vector<ScoredToken>& tokens, size_t offset, std::string* out) const;

  ReplyKind kind_;
  bool include_usage_, logprobs_;
  int top_logprobs_;
  std::string head_;   // of a whole reply, up to its choices
  std::string event_;  // of an event, up to its choices
};

void AppendJsonString(std::string_view utf8, std::string* out);
void AppendUsageJson(const Usage& usage, std::string* out);
size_t CountCharacters(std::string_view utf8);

}  // namespace stria
