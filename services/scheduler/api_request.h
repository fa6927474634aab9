// The bodies of the OpenAI API, read strictly into plain structs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tokenizer/chat_template.h"
#include "proto/sequences.h"
#include "scheduler/kv_choice.h"
#include "services/scheduler/json_fields.h"

namespace stria {

// What requests are checked against.
struct RequestLimits {
  int vocab = 0;
  uint32_t max_sequences = 128;  // of one request: prompts · n
  size_t max_stops = 16;
  size_t max_stop_bytes = 1024;  // each
  size_t max_salt_bytes = 256;
  bool has_pack = false;         // the model has one, and so a mode `kaizen`
};

// When a request is to run, and how long its client waits.
struct Urgency {
  int32_t priority = 0;        // lower numbers first, as vLLM has it
  double queue_timeout = 0;    // seconds until it first runs; 0: the server's
  double deadline = 0;         // seconds from arrival to its end; 0: the server's
};

// What chat and text completions have in common.
struct GenerationRequest {
  std::string model;
  uint32_t n = 1;
  uint32_t max_tokens = 0;  // 0: not given
  bool stream = false, include_usage = false;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  std::optional<uint64_t> seed;
  SamplingParams sampling;  // seed and choice are set later
  KvChoice kv;
  Urgency urgency;
  bool cache_prompt = true;  // share pages of the prompt with other requests; by default in modes auto and fp16 only
  std::string cache_salt;    // only with those of the same salt
};

struct ChatRequest {
  GenerationRequest generation;
  std::vector<ChatMessage> messages;
};

using PromptText = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  GenerationRequest generation;
  std::vector<PromptText> prompts;
  bool echo = false;
};

struct ScoreRequest {
  std::string model;
  std::vector<PromptText> prompts;
  int32_t top_logprobs = 0;
  KvChoice kv;
  Urgency urgency;
};

struct TokenizeRequest {
  std::string model;
  std::string text;
  std::vector<ChatMessage> messages;  // instead of text
  bool add_special_tokens = true;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};

// Each reads a whole body; what comes back first is what is wrong with it.
std::optional<ApiError> ReadChat(std::string_view body, const RequestLimits& limits, ChatRequest* request);
std::optional<ApiError> ReadCompletion(std::string_view body, const RequestLimits& limits, CompletionRequest* request);
std::optional<ApiError> ReadScore(std::string_view body, const RequestLimits& limits, ScoreRequest* request);
std::optional<ApiError> ReadTokenize(std::string_view body, const RequestLimits& limits, TokenizeRequest* request);
std::optional<ApiError> ReadDetokenize(std::string_view body, const RequestLimits& limits, DetokenizeRequest* request);

}  // namespace stria
