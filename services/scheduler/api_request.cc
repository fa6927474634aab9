#include "services/scheduler/api_request.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/scheduler/kv_reader.h"

namespace stria {
namespace {

constexpr int64_t kMaxTopLogprobs = 20;
constexpr int64_t kMaxTokens = int64_t{1} << 30;
constexpr int64_t kMaxPriority = 1'000'000;
constexpr double kMinSeconds = 0.001, kMaxSeconds = 86400;

Urgency ReadUrgency(ObjectReader& body) {
  Urgency urgency;
  urgency.priority = static_cast<int32_t>(body.Integer("priority", -kMaxPriority, kMaxPriority).value_or(0));
  urgency.queue_timeout = body.Number("queue_timeout", kMinSeconds, kMaxSeconds).value_or(0);
  urgency.deadline = body.Number("deadline", kMinSeconds, kMaxSeconds).value_or(0);
  return urgency;
}

void ReadStop(ObjectReader& body, const RequestLimits& limits, std::vector<std::string>* stops) {
  const Json* value = body.Find("stop");
  if (value == nullptr) return;
  const auto add = [&](const Json& text) {
    if (!text.is_string()) return body.Fail("stop", absl::StrCat("must be a string or a list of strings, not ", Quote(text)));
    const std::string& stop = text.get_ref<const std::string&>();
    if (stop.empty()) return body.Fail("stop", "must not be empty");
    if (stop.size() > limits.max_stop_bytes) {
      return body.Fail("stop", absl::StrCat("has ", stop.size(), " bytes; the most is ", limits.max_stop_bytes));
    }
    stops->push_back(stop);
  };
  if (!value->is_array()) return add(*value);
  if (value->size() > limits.max_stops) {
    return body.Fail("stop", absl::StrCat("lists ", value->size(), " strings; the most is ", limits.max_stops));
  }
  for (const Json& text : *value) add(text);
}

void ReadLogitBias(ObjectReader& body, const RequestLimits& limits, SamplingParams* sampling) {
  const Json* value = body.Find("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object()) return body.Fail("logit_bias", absl::StrCat("must be an object, not ", Quote(*value)));
  for (const auto& [name, bias] : value->items()) {
    int32_t token;
    if (!absl::SimpleAtoi(name, &token) || token < 0 || token >= limits.vocab) {
      return body.Fail("logit_bias", absl::StrCat("names token ", Quote(Json(name)), "; tokens are 0 to ", limits.vocab - 1));
    }
    if (!bias.is_number() || bias.get<double>() < -100 || bias.get<double>() > 100) {
      return body.Fail("logit_bias", absl::StrCat("of token ", name, " must be a number from -100 to 100, not ", Quote(bias)));
    }
    sampling->logit_bias.emplace_back(token, bias.get<float>());
  }
}

// A stream's options, alone of use with `stream`.
void ReadStreaming(ObjectReader& body, std::optional<ApiError>* error, GenerationRequest* request) {
  request->stream = body.Bool("stream").value_or(false);
  const Json* value = body.Find("stream_options");
  if (value == nullptr) return;
  if (!request->stream) return body.Fail("stream_options", "is only allowed with \"stream\": true");
  ObjectReader options(*value, "stream_options", error);
  request->include_usage = options.Bool("include_usage").value_or(false);
  options.RefuseRest();
}

void ReadGeneration(ObjectReader& body, const RequestLimits& limits, std::optional<ApiError>* error, GenerationRequest* request) {
  request->model = body.String("model").value_or("");
  request->n = static_cast<uint32_t>(body.Integer("n", 1, limits.max_sequences).value_or(1));
  ReadStreaming(body, error, request);
  ReadStop(body, limits, &request->stop);
  request->ignore_eos = body.Bool("ignore_eos").value_or(false);
  if (const auto seed = body.Integer("seed", INT64_MIN, INT64_MAX)) request->seed = static_cast<uint64_t>(*seed);
  request->max_tokens = static_cast<uint32_t>(body.Integer("max_tokens", 1, kMaxTokens).value_or(0));
  SamplingParams& sampling = request->sampling;
  sampling.temperature = static_cast<float>(body.Number("temperature", 0, 2).value_or(1));
  sampling.top_p = static_cast<float>(body.Number("top_p", 0, 1).value_or(1));
  // -1 is how other servers write "off".
  sampling.top_k = static_cast<uint32_t>(std::max<int64_t>(0, body.Integer("top_k", -1, INT32_MAX).value_or(0)));
  sampling.min_p = static_cast<float>(body.Number("min_p", 0, 1).value_or(0));
  sampling.presence_penalty = static_cast<float>(body.Number("presence_penalty", -2, 2).value_or(0));
  sampling.frequency_penalty = static_cast<float>(body.Number("frequency_penalty", -2, 2).value_or(0));
  sampling.repetition_penalty = static_cast<float>(body.Number("repetition_penalty", 0.01, 10).value_or(1));
  ReadLogitBias(body, limits, &sampling);
  request->kv = ReadKv(body, limits.has_pack, error);
  request->urgency = ReadUrgency(body);
  // What reads another's quantised pages is a little off what computes its own: who fixes a width has asked for no such thing.
  const bool exact = request->kv.mode == KvChoice::Mode::kFixed && request->kv.width == Width::kFp16;
  request->cache_prompt = body.Bool("cache_prompt").value_or(exact || request->kv.mode == KvChoice::Mode::kAuto);
  request->cache_salt = body.String("cache_salt").value_or("");
  if (request->cache_salt.size() > limits.max_salt_bytes) {
    body.Fail("cache_salt", absl::StrCat("has ", request->cache_salt.size(), " bytes; the most is ", limits.max_salt_bytes));
  }
  body.Accept("user");
  body.Accept("metadata");
  body.Accept("store");
}

std::optional<std::string> ReadContent(ObjectReader& message, std::optional<ApiError>* error) {
  const Json* content = message.Find("content");
  if (content == nullptr) return message.Fail("content", "is missing"), std::nullopt;
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) {
    return message.Fail("content", absl::StrCat("must be a string or a list of text parts, not ", Quote(*content))), std::nullopt;
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    ObjectReader part((*content)[i], message.PathOf(absl::StrCat("content[", i, "]")), error);
    const std::string type = part.String("type").value_or("");
    if (type != "text") part.Fail("type", absl::StrCat("must be \"text\": this model reads nothing else, not ", Quote(Json(type))), "unsupported_value");
    const std::optional<std::string> piece = part.String("text");
    if (!piece) part.Fail("text", "is missing");
    part.RefuseRest();
    if (message.failed()) return std::nullopt;
    text += *piece;
  }
  return text;
}

std::vector<ChatMessage> ReadMessages(ObjectReader& body, std::optional<ApiError>* error) {
  std::vector<ChatMessage> turns;
  const Json* messages = body.Find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    body.Fail("messages", messages == nullptr ? "is missing" : absl::StrCat("must be a list of messages, not ", Quote(*messages)));
    return turns;
  }
  for (size_t i = 0; i < messages->size() && !body.failed(); ++i) {
    ObjectReader message((*messages)[i], absl::StrCat("messages[", i, "]"), error);
    std::string role = message.String("role").value_or("");
    if (role == "developer") role = "system";  // OpenAI's newer name for it
    if (role != "system" && role != "user" && role != "assistant") {
      message.Fail("role", absl::StrCat("must be system, developer, user or assistant, not ", Quote(Json(role))), "unsupported_value");
    }
    std::optional<std::string> content = ReadContent(message, error);
    message.Refuse("name", "is not supported: this model's template has no place for it");
    message.Refuse("tool_calls", "is not supported yet");
    message.Refuse("function_call", "is not supported yet");
    message.RefuseRest();
    if (content) turns.push_back({std::move(role), *std::move(content)});
  }
  return turns;
}

std::optional<std::vector<int32_t>> ReadIds(ObjectReader& body, const char* field, const Json& list, const RequestLimits& limits) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const Json& id : list) {
    if (!id.is_number_integer() || (id.is_number_unsigned() ? id.get<uint64_t>() >= static_cast<uint64_t>(limits.vocab)
                                                            : id.get<int64_t>() < 0 || id.get<int64_t>() >= limits.vocab)) {
      body.Fail(field, absl::StrCat("holds ", Quote(id), "; tokens are integers from 0 to ", limits.vocab - 1));
      return std::nullopt;
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

// A text, a list of ids, or a list of either.
std::vector<PromptText> ReadPrompts(ObjectReader& body, const RequestLimits& limits) {
  std::vector<PromptText> prompts;
  const Json* value = body.Find("prompt");
  if (value == nullptr) return body.Fail("prompt", "is missing"), prompts;
  const auto add = [&](const Json& prompt) {
    if (prompt.is_string()) {
      prompts.emplace_back(prompt.get<std::string>());
    } else if (prompt.is_array() && !prompt.empty()) {
      if (auto ids = ReadIds(body, "prompt", prompt, limits)) prompts.emplace_back(*std::move(ids));
    } else {
      body.Fail("prompt", absl::StrCat("must be a text, a list of token ids, or a list of either, not ", Quote(prompt)));
    }
  };
  if (!value->is_array() || (!value->empty() && value->front().is_number())) {
    add(*value);
  } else if (value->empty() || value->size() > limits.max_sequences) {
    body.Fail("prompt", absl::StrCat("lists ", value->size(), " prompts; 1 to ", limits.max_sequences, " are allowed"));
  } else {
    for (const Json& prompt : *value) {
      if (body.failed()) break;
      add(prompt);
    }
  }
  return prompts;
}

// Both names of the same thing for the chat API.
void ReadMaxCompletionTokens(ObjectReader& body, GenerationRequest* request) {
  const auto limit = body.Integer("max_completion_tokens", 1, kMaxTokens);
  if (!limit) return;
  if (request->max_tokens != 0 && request->max_tokens != *limit) {
    return body.Fail("max_completion_tokens", absl::StrCat("is ", *limit, ", but 'max_tokens' is ", request->max_tokens));
  }
  request->max_tokens = static_cast<uint32_t>(*limit);
}

void RefuseOtherFormats(ObjectReader& body, std::optional<ApiError>* error) {
  const Json* value = body.Find("response_format");
  if (value == nullptr) return;
  ObjectReader format(*value, "response_format", error);
  if (const std::string type = format.String("type").value_or("text"); type != "text") {
    format.Fail("type", absl::StrCat("must be \"text\": other formats are not supported yet, not ", Quote(Json(type))), "unsupported_value");
  }
  format.RefuseRest();
}

}  // namespace

std::optional<ApiError> ReadChat(std::string_view text, const RequestLimits& limits, ChatRequest* request) {
  Json json;
  if (auto error = ParseObject(text, &json)) return error;
  std::optional<ApiError> error;
  ObjectReader body(json, "", &error);
  ReadGeneration(body, limits, &error, &request->generation);
  request->messages = ReadMessages(body, &error);
  ReadMaxCompletionTokens(body, &request->generation);
  const bool logprobs = body.Bool("logprobs").value_or(false);
  const std::optional<int64_t> top = body.Integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && !logprobs) body.Fail("top_logprobs", "is only allowed with \"logprobs\": true");
  if (logprobs) request->generation.sampling.top_logprobs = static_cast<int32_t>(top.value_or(0));
  RefuseOtherFormats(body, &error);
  body.Refuse("tools", "is not supported yet");
  body.Refuse("tool_choice", "is not supported yet");
  body.Refuse("functions", "is not supported");
  body.Refuse("function_call", "is not supported");
  body.RefuseRest();
  return error;
}

std::optional<ApiError> ReadCompletion(std::string_view text, const RequestLimits& limits, CompletionRequest* request) {
  Json json;
  if (auto error = ParseObject(text, &json)) return error;
  std::optional<ApiError> error;
  ObjectReader body(json, "", &error);
  GenerationRequest& generation = request->generation;
  ReadGeneration(body, limits, &error, &generation);
  if (generation.max_tokens == 0) generation.max_tokens = 16;  // OpenAI's default for this API
  request->prompts = ReadPrompts(body, limits);
  if (request->prompts.size() * generation.n > limits.max_sequences) {
    body.Fail("n", absl::StrCat("asks for ", request->prompts.size() * generation.n, " answers (", request->prompts.size(),
                                " prompts, n ", generation.n, "); the most is ", limits.max_sequences));
  }
  request->echo = body.Bool("echo").value_or(false);
  if (const auto logprobs = body.Integer("logprobs", 0, kMaxTopLogprobs)) {
    generation.sampling.top_logprobs = static_cast<int32_t>(*logprobs);
    if (request->echo) body.Fail("echo", "is not supported together with 'logprobs': ask /v1/score for a prompt's log-probabilities", "unsupported_parameter");
  }
  body.Refuse("best_of", "is not supported");
  body.Refuse("suffix", "is not supported by this model");
  body.RefuseRest();
  return error;
}

std::optional<ApiError> ReadScore(std::string_view text, const RequestLimits& limits, ScoreRequest* request) {
  Json json;
  if (auto error = ParseObject(text, &json)) return error;
  std::optional<ApiError> error;
  ObjectReader body(json, "", &error);
  request->model = body.String("model").value_or("");
  request->prompts = ReadPrompts(body, limits);
  request->top_logprobs = static_cast<int32_t>(body.Integer("top_logprobs", 0, kMaxTopLogprobs).value_or(0));
  request->kv = ReadKv(body, limits.has_pack, &error);
  if (request->kv.mode == KvChoice::Mode::kKaizen) {
    body.Fail("kv", "has mode 'kaizen', which chooses by the memory at hand: score a plan that is spelled out", "unsupported_value");
  }
  if (request->kv.keep || request->kv.ratio) {
    body.Fail("kv", "evicts, but a score's text is forced through decode steps, and eviction takes from a prompt", "unsupported_value");
  }
  request->urgency = ReadUrgency(body);
  body.Accept("user");
  body.RefuseRest();
  return error;
}

std::optional<ApiError> ReadTokenize(std::string_view text, const RequestLimits&, TokenizeRequest* request) {
  Json json;
  if (auto error = ParseObject(text, &json)) return error;
  std::optional<ApiError> error;
  ObjectReader body(json, "", &error);
  request->model = body.String("model").value_or("");
  const std::optional<std::string> prompt = body.String("prompt");
  if (body.Find("messages") != nullptr) {
    request->messages = ReadMessages(body, &error);
    if (prompt) body.Fail("messages", "is not allowed together with 'prompt'");
  } else if (!prompt) {
    body.Fail("prompt", "is missing");
  }
  request->text = prompt.value_or("");
  request->add_special_tokens = body.Bool("add_special_tokens").value_or(true);
  body.RefuseRest();
  return error;
}

std::optional<ApiError> ReadDetokenize(std::string_view text, const RequestLimits& limits, DetokenizeRequest* request) {
  Json json;
  if (auto error = ParseObject(text, &json)) return error;
  std::optional<ApiError> error;
  ObjectReader body(json, "", &error);
  request->model = body.String("model").value_or("");
  const Json* tokens = body.Find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    body.Fail("tokens", tokens == nullptr ? "is missing" : absl::StrCat("must be a list of token ids, not ", Quote(*tokens)));
  } else if (auto ids = ReadIds(body, "tokens", *tokens, limits)) {
    request->tokens = *std::move(ids);
  }
  body.RefuseRest();
  return error;
}

}  // namespace stria
