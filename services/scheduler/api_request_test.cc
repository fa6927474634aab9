#include "services/scheduler/api_request.h"

#include <string>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace stria {
namespace {

const RequestLimits kLimits{.vocab = 100};

std::optional<ApiError> Chat(const std::string& body, ChatRequest* request = nullptr) {
  ChatRequest scratch;
  return ReadChat(body, kLimits, request == nullptr ? &scratch : request);
}

std::optional<ApiError> Completion(const std::string& body, CompletionRequest* request = nullptr) {
  CompletionRequest scratch;
  return ReadCompletion(body, kLimits, request == nullptr ? &scratch : request);
}

// A chat with one more field.
std::string With(const std::string& field) {
  return absl::StrCat(R"({"model":"m","messages":[{"role":"user","content":"hi"}],)", field, "}");
}

TEST(ReadChat, AllFields) {
  ChatRequest r;
  const auto error = Chat(R"({"model": "m", "messages": [{"role": "developer", "content": "be kind"},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": "c", "refusal": null, "tool_calls": null}],
      "stream": true, "stream_options": {"include_usage": true}, "stop": ["x", "yy"], "n": 3, "seed": -7, "logprobs": true,
      "top_logprobs": 4, "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125, "presence_penalty": -2,
      "frequency_penalty": 1.5, "repetition_penalty": 1.25, "logit_bias": {"5": -100, "6": 2.5}, "max_completion_tokens": 9,
      "user": "u", "metadata": {"a": "b"}, "store": true, "response_format": {"type": "text"}, "kv": {"mode": "int4"},
      "priority": -5, "queue_timeout": 2.5, "deadline": 30, "cache_prompt": false, "cache_salt": "tenant"})", &r);
  ASSERT_FALSE(error) << error->message;
  ASSERT_EQ(r.messages.size(), 3u);
  EXPECT_EQ(r.messages[0].role, "system");
  EXPECT_EQ(r.messages[1].content, "ab");
  const GenerationRequest& g = r.generation;
  EXPECT_TRUE(g.stream && g.include_usage);
  EXPECT_EQ(g.stop, (std::vector<std::string>{"x", "yy"}));
  EXPECT_EQ(g.n, 3u);
  EXPECT_EQ(*g.seed, static_cast<uint64_t>(-7));
  EXPECT_EQ(g.sampling.top_logprobs, 4);
  EXPECT_EQ(g.sampling.temperature, 0.5f);
  EXPECT_EQ(g.sampling.top_p, 0.25f);
  EXPECT_EQ(g.sampling.top_k, 7u);
  EXPECT_EQ(g.sampling.min_p, 0.125f);
  EXPECT_EQ(g.sampling.presence_penalty, -2.0f);
  EXPECT_EQ(g.sampling.frequency_penalty, 1.5f);
  EXPECT_EQ(g.sampling.repetition_penalty, 1.25f);
  EXPECT_EQ(g.sampling.logit_bias, (std::vector<std::pair<int32_t, float>>{{5, -100.0f}, {6, 2.5f}}));
  EXPECT_EQ(g.max_tokens, 9u);
  EXPECT_EQ(g.urgency.priority, -5);
  EXPECT_EQ(g.urgency.queue_timeout, 2.5);
  EXPECT_EQ(g.urgency.deadline, 30);
  EXPECT_FALSE(g.cache_prompt);
  EXPECT_EQ(g.cache_salt, "tenant");
  EXPECT_EQ(g.kv.Describe(), "int4");
  const CachePlan plan = *g.kv.Plan(2, 10);
  EXPECT_FALSE(plan.follow_tiers);
  ASSERT_EQ(plan.layers.size(), 2u);
  EXPECT_EQ(plan.layers[1].values, Width::kInt4);
}

TEST(ReadChat, PromptsAreSharedByDefaultWhereThatIsExactOrTiersAreFollowed) {
  const auto shares = [](const std::string& more) {
    ChatRequest r;
    const auto error = Chat(R"({"messages":[{"role":"user","content":"hi"}])" + more + "}", &r);
    EXPECT_FALSE(error) << error->message;
    return r.generation.cache_prompt;
  };
  EXPECT_TRUE(shares(R"(,"kv":{"mode":"auto"})"));
  EXPECT_TRUE(shares(R"(,"kv":{"mode":"fp16"})"));
  for (const char* mode : {"int8", "int4", "int2"}) {
    const std::string kv = R"(,"kv":{"mode":")" + std::string(mode) + "\"}";
    EXPECT_FALSE(shares(kv)) << mode;
    EXPECT_TRUE(shares(kv + R"(,"cache_prompt":true)")) << mode;
  }
}

TEST(ReadChat, Defaults) {
  ChatRequest r;
  ASSERT_FALSE(Chat(R"({"messages":[{"role":"user","content":"hi"}],"stop":null,"temperature":null,"seed":null})", &r));
  EXPECT_EQ(r.generation.n, 1u);
  EXPECT_EQ(r.generation.max_tokens, 0u);
  EXPECT_EQ(r.generation.sampling.temperature, 1.0f);
  EXPECT_EQ(r.generation.sampling.top_logprobs, -1);
  EXPECT_FALSE(r.generation.seed);
  EXPECT_TRUE(r.generation.cache_prompt);
  EXPECT_EQ(r.generation.cache_salt, "");
  EXPECT_EQ(r.generation.kv.Describe(), "auto");
  EXPECT_TRUE(r.generation.kv.Plan(30, 10)->follow_tiers);
}

struct Bad {
  std::string field;
  const char* param;
  const char* says;  // part of the message
};

TEST(ReadChat, NamesWhatIsWrong) {
  const Bad cases[] = {
      {R"("temperature": 2.1)", "temperature", "2.1"},
      {R"("temperature": "hot")", "temperature", "hot"},
      {R"("top_p": -0.1)", "top_p", "-0.1"},
      {R"("top_k": 1.5)", "top_k", "1.5"},
      {R"("min_p": 1.01)", "min_p", "1.01"},
      {R"("presence_penalty": 3)", "presence_penalty", "3"},
      {R"("repetition_penalty": 0)", "repetition_penalty", "0"},
      {R"("max_tokens": -5)", "max_tokens", "-5"},
      {R"("max_tokens": 0)", "max_tokens", "0"},
      {R"("max_tokens": 1e300)", "max_tokens", "1e+300"},
      {R"("max_tokens": 18446744073709551615)", "max_tokens", "18446744073709551615"},
      {R"("max_tokens": 5, "max_completion_tokens": 6)", "max_completion_tokens", "5"},
      {R"("n": 0)", "n", "0"},
      {R"("n": 129)", "n", "129"},
      {R"("n": true)", "n", "true"},
      {R"("stream": "yes")", "stream", "yes"},
      {R"("stream_options": {"include_usage": true})", "stream_options", "stream"},
      {R"("stream": true, "stream_options": {"extra": 1})", "stream_options.extra", "unknown"},
      {R"("stop": [""])", "stop", "empty"},
      {R"("stop": [1])", "stop", "1"},
      {R"("stop": {"a": 1})", "stop", "string"},
      {R"("stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])", "stop", "17"},
      {R"("logprobs": 3)", "logprobs", "3"},
      {R"("top_logprobs": 3)", "top_logprobs", "logprobs"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "21"},
      {R"("logit_bias": {"100": 1})", "logit_bias", "100"},
      {R"("logit_bias": {"-1": 1})", "logit_bias", "-1"},
      {R"("logit_bias": {"5": 101})", "logit_bias", "101"},
      {R"("logit_bias": [1])", "logit_bias", "object"},
      {R"("seed": 1.5)", "seed", "1.5"},
      {R"("tools": [{"type": "function"}])", "tools", "not supported"},
      {R"("tool_choice": "auto")", "tool_choice", "not supported"},
      {R"("response_format": {"type": "json_object"})", "response_format.type", "json_object"},
      {R"("frobnicate": 1)", "frobnicate", "unknown"},
      {R"("echo": true)", "echo", "unknown"},
      {R"("kv": "int4")", "kv", "object"},
      {R"("kv": {"mode": "int3"})", "kv.mode", "int3"},
      {R"("kv": {"mode": "kaizen"})", "kv.mode", "pack"},
      {R"("kv": {"mode": "plan"})", "kv.layers", "missing"},
      {R"("kv": {"mode": "plan", "layers": ["int4", {"keys": "int3", "values": "int4"}]})", "kv.layers", "layer 1"},
      {R"("kv": {"ratio": 4})", "kv.ratio", "auto"},
      {R"("kv": {"ratio": 0.5})", "kv.ratio", "0.5"},
      {R"("kv": {"keep": 0})", "kv.keep", "0"},
      {R"("kv": {"keep": 2})", "kv.keep", "64"},
      {R"("kv": {"keep": "half"})", "kv.keep", "half"},
      {R"("kv": {"guard": "off"})", "kv.guard", "pack"},
      {R"("kv": {"layers": []})", "kv.layers", "plan"},
      {R"("kv": {"mode": "auto", "width": 4})", "kv.width", "unknown"},
  };
  for (const Bad& bad : cases) {
    const auto error = Chat(With(bad.field));
    ASSERT_TRUE(error) << bad.field;
    EXPECT_EQ(error->status, 400) << bad.field;
    EXPECT_EQ(error->param, bad.param) << bad.field;
    EXPECT_TRUE(absl::StrContains(error->message, bad.says)) << bad.field << " → " << error->message;
  }
}

TEST(ReadChat, Messages) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"messages": []})", "messages"},
      {R"({})", "messages"},
      {R"({"messages": "hi"})", "messages"},
      {R"({"messages": [1]})", "messages[0]"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content"},
      {R"({"messages": [{"role": "tool", "content": "x"}]})", "messages[0].role"},
      {R"({"messages": [{"content": "x"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "x", "weight": 1}]})", "messages[1].weight"},
      {R"({"messages": [{"role": "user", "content": "x", "name": "joe"}]})", "messages[0].name"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})", "messages[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})", "messages[0].content[0].text"},
  };
  for (const auto& [body, param] : cases) {
    const auto error = Chat(body);
    ASSERT_TRUE(error) << body;
    EXPECT_EQ(error->param, param) << body;
  }
}

TEST(ParseObject, HostileBodies) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"[1]", "object"},
      {"\"x\"", "object"},
      {R"({"a":1,"a":2})", "twice"},
      {R"({"a":{"b":1,"c":{},"b":2}})", "twice"},
      {"{\"a\":\"\xff\"}", "not JSON"},
      {"{\"a\":\"\xc3\"}", "not JSON"},
      {"{\"a\":\"\xed\xa0\x80\"}", "not JSON"},     // an encoded surrogate
      {R"({"a":"\ud800"})", "not JSON"},            // a lone one
      {R"({"a":"\udc00\ud800"})", "not JSON"},
      {absl::StrCat(R"({"a":)", std::string(100000, '['), std::string(100000, ']'), "}"), "deeper"},
      {absl::StrCat(R"({"a":)", std::string(100000, '['), "}"), "deeper"},
      {R"({"a":NaN})", "not JSON"},
      {R"({"a":1e999})", "not JSON"},
      {R"({"a":1} x)", "not JSON"},
  };
  for (const auto& [body, says] : cases) {
    Json json;
    const auto error = ParseObject(body, &json);
    ASSERT_TRUE(error) << body.substr(0, 60);
    EXPECT_TRUE(absl::StrContains(error->message, says)) << body.substr(0, 60) << " → " << error->message;
    EXPECT_EQ(ToResponse(*error).status, 400);
    EXPECT_NE(Json::parse(ToResponse(*error).body, nullptr, false).type(), Json::value_t::discarded) << "the answer is JSON itself";
  }
  Json json;
  EXPECT_FALSE(ParseObject("{\"a\":\"\\u0000\\ud83d\\ude00 \xf0\x9f\x98\x80\",\"b\":[{\"a\":1},{\"a\":2}]}", &json));
  EXPECT_EQ(json["a"].get<std::string>(), std::string("\0\xf0\x9f\x98\x80 \xf0\x9f\x98\x80", 10));
}

TEST(ReadCompletion, Prompts) {
  CompletionRequest r;
  ASSERT_FALSE(Completion(R"({"prompt": "hi"})", &r));
  EXPECT_EQ(std::get<std::string>(r.prompts.at(0)), "hi");
  EXPECT_EQ(r.generation.max_tokens, 16u) << "OpenAI's default";
  r = {};
  ASSERT_FALSE(Completion(R"({"prompt": ["a", "b"], "echo": true, "max_tokens": 3})", &r));
  EXPECT_EQ(r.prompts.size(), 2u);
  EXPECT_TRUE(r.echo);
  r = {};
  ASSERT_FALSE(Completion(R"({"prompt": [1, 2, 99], "logprobs": 5})", &r));
  EXPECT_EQ(std::get<std::vector<int32_t>>(r.prompts.at(0)), (std::vector<int32_t>{1, 2, 99}));
  EXPECT_EQ(r.generation.sampling.top_logprobs, 5);
  r = {};
  ASSERT_FALSE(Completion(R"({"prompt": [[1], [2, 3]], "n": 2})", &r));
  EXPECT_EQ(r.prompts.size(), 2u);
}

TEST(ReadCompletion, NamesWhatIsWrong) {
  const Bad cases[] = {
      {R"({})", "prompt", "missing"},
      {R"({"prompt": []})", "prompt", "0"},
      {R"({"prompt": [[]]})", "prompt", "[]"},
      {R"({"prompt": [1, "a"]})", "prompt", "a"},
      {R"({"prompt": ["a", 1]})", "prompt", "1"},
      {R"({"prompt": [100]})", "prompt", "100"},
      {R"({"prompt": [-1]})", "prompt", "-1"},
      {R"({"prompt": [1.5]})", "prompt", "1.5"},
      {R"({"prompt": [18446744073709551615]})", "prompt", "18446744073709551615"},
      {R"({"prompt": {"a": 1}})", "prompt", "text"},
      {R"({"prompt": "a", "best_of": 2})", "best_of", "not supported"},
      {R"({"prompt": "a", "suffix": "z"})", "suffix", "not supported"},
      {R"({"prompt": "a", "echo": true, "logprobs": 0})", "echo", "/v1/score"},
      {R"({"prompt": "a", "logprobs": 21})", "logprobs", "21"},
      {R"({"prompt": "a", "messages": []})", "messages", "unknown"},
      {R"({"prompt": ["a", "b"], "n": 128})", "n", "256"},
  };
  for (const Bad& bad : cases) {
    const auto error = Completion(bad.field);
    ASSERT_TRUE(error) << bad.field;
    EXPECT_EQ(error->param, bad.param) << bad.field;
    EXPECT_TRUE(absl::StrContains(error->message, bad.says)) << bad.field << " → " << error->message;
  }
}

TEST(ReadScore, FieldsAndErrors) {
  ScoreRequest score;
  ASSERT_FALSE(ReadScore(R"({"model": "m", "prompt": "abc", "kv": {"mode": "int2"}, "top_logprobs": 2})", kLimits, &score));
  EXPECT_EQ(score.kv.Describe(), "int2");
  EXPECT_EQ(score.top_logprobs, 2);
  EXPECT_TRUE(ReadScore(R"({"prompt": "abc", "temperature": 1})", kLimits, &score));
}

TEST(ReadTokenize, FieldsAndErrors) {
  TokenizeRequest request;
  ASSERT_FALSE(ReadTokenize(R"({"prompt": "abc", "add_special_tokens": false})", kLimits, &request));
  EXPECT_FALSE(request.add_special_tokens);
  EXPECT_TRUE(ReadTokenize(R"({})", kLimits, &request));
  EXPECT_TRUE(ReadTokenize(R"({"prompt": "a", "messages": [{"role": "user", "content": "x"}]})", kLimits, &request));
  DetokenizeRequest back;
  ASSERT_FALSE(ReadDetokenize(R"({"tokens": [1, 2]})", kLimits, &back));
  EXPECT_EQ(back.tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(ReadDetokenize(R"({"tokens": [100]})", kLimits, &back));
  EXPECT_TRUE(ReadDetokenize(R"({"tokens": "a"})", kLimits, &back));
}

}  // namespace
}  // namespace stria
