#include "services/scheduler/api_reply.h"

#include <cmath>

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace stria {
namespace {

// The events of a stream, [DONE] left out.
std::vector<Json> Events(const std::string& stream, bool* done = nullptr) {
  std::vector<Json> events;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    const std::string line = stream.substr(at, end - at);
    EXPECT_EQ(line.substr(0, 6), "data: ");
    EXPECT_EQ(line.find('\n'), std::string::npos);
    if (line == "data: [DONE]") {
      if (done != nullptr) *done = true;
    } else {
      events.push_back(Json::parse(line.substr(6)));
    }
    at = end + 2;
  }
  return events;
}

ReplyFormat Format(ReplyKind kind, bool usage = false, bool logprobs = false, int top = 0) {
  return ReplyFormat(kind, "id-1", 1700000000, "the \"model\"", "fp_1", usage, logprobs, top);
}

Usage SomeUsage() {
  Usage usage;
  usage.prompt_tokens = 10;
  usage.completion_tokens = 5;
  usage.cached_tokens = 7;
  KvUsage kv;
  kv.bytes = 1000;
  kv.tokens = 14;
  kv.bits_per_element = 8;  // 1000 elements
  kv.payload_bits = 4;
  kv.fp16_bytes = 2000;
  usage.kv.Add(kv);
  usage.plan.Add(KvChoice(), 10);
  return usage;
}

TEST(Reply, ChatStream) {
  const ReplyFormat format = Format(ReplyKind::kChat, /*usage=*/true);
  std::string out;
  format.AppendRole(0, &out);
  format.AppendDelta(0, "a\"\\\n\t\x01\x7f é 😀", {}, 0, &out);
  format.AppendFinish(0, "stop", &out);
  format.AppendUsage(SomeUsage(), &out);
  ReplyFormat::AppendDone(&out);
  bool done = false;
  const std::vector<Json> events = Events(out, &done);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_TRUE(done);
  for (const Json& event : events) {
    EXPECT_EQ(event["id"], "id-1");
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["created"], 1700000000);
    EXPECT_EQ(event["model"], "the \"model\"");
    EXPECT_EQ(event["system_fingerprint"], "fp_1");
    EXPECT_TRUE(event.contains("usage"));
  }
  EXPECT_EQ(events[0]["choices"][0]["delta"], Json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "a\"\\\n\t\x01\x7f é 😀");
  EXPECT_TRUE(events[1]["choices"][0]["finish_reason"].is_null());
  EXPECT_TRUE(events[1]["usage"].is_null());
  EXPECT_EQ(events[2]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(events[3]["choices"].empty());
  EXPECT_EQ(events[3]["usage"]["total_tokens"], 15);
}

TEST(Reply, UsageIsOnlyInStreamsThatAskForIt) {
  std::string out;
  Format(ReplyKind::kChat).AppendDelta(1, "x", {}, 0, &out);
  EXPECT_FALSE(Events(out)[0].contains("usage"));
  EXPECT_EQ(Events(out)[0]["choices"][0]["index"], 1);
}

TEST(Reply, KvFigures) {
  Usage usage = SomeUsage();
  KvUsage second;  // three times the elements, FP16
  second.bytes = 6000;
  second.tokens = 42;
  second.bits_per_element = 16;
  second.payload_bits = 16;
  second.fp16_bytes = 6000;
  usage.kv.Add(second);
  std::string text;
  AppendUsageJson(usage, &text);
  const Json json = Json::parse(text);
  EXPECT_EQ(json["prompt_tokens_details"], Json({{"cached_tokens", 7}}));
  EXPECT_EQ(json["kv_plan"], "auto");
  EXPECT_EQ(json["kv_bytes"], 7000);
  EXPECT_DOUBLE_EQ(json["kv_payload_bits"].get<double>(), 13);        // (1000·4 + 3000·16) / 4000
  EXPECT_DOUBLE_EQ(json["kv_bits_per_element"].get<double>(), 14);    // 7000 · 8 / 4000
  EXPECT_NEAR(json["kv_ratio"].get<double>(), 8000.0 / 7000, 1e-5);
  EXPECT_NEAR(json["kv_plan_ratio"].get<double>(), 16.0 / 13, 1e-5);  // auto: by what was held
  KvChoice choice;
  choice.mode = KvChoice::Mode::kFixed;
  choice.width = Width::kInt2;
  usage.plan = {};
  usage.plan.Add(choice, 1000);
  text.clear();
  AppendUsageJson(usage, &text);
  EXPECT_EQ(Json::parse(text)["kv_plan_ratio"], 8);
  EXPECT_EQ(Json::parse(text)["kv_plan"], "int2");
  EXPECT_EQ(Json::parse(text)["kv_tokens"], 56);
  EXPECT_FALSE(Json::parse(text).contains("kv_ratio_missed"));
  choice.keep = 0.25;
  usage.plan = {};
  usage.plan.Add(choice, 1000);
  usage.plan.Add(choice, 3000);
  text.clear();
  AppendUsageJson(usage, &text);
  EXPECT_EQ(Json::parse(text)["kv_plan_ratio"], 32);
  EXPECT_EQ(Json::parse(text)["kv_plan"], "int2, keep 0.25");
}

TEST(Reply, KvFiguresOfPlansThatDifferAndWereWidened) {
  Usage usage;
  KvUsage kv{.bytes = 1000, .tokens = 14, .payload_bits = 8, .bits_per_element = 8, .fp16_bytes = 2000, .cached_tokens = 0, .guard_bits = 2};
  usage.kv.Add(kv);
  KvChoice choice;
  choice.mode = KvChoice::Mode::kKaizen;
  choice.widen = true;
  choice.layers.resize(2);
  for (LayerAction& action : choice.layers) action.keys = action.values = Width::kInt4;
  usage.plan.Add(choice, 1000);  // 250 tokens' worth of FP16
  choice.layers[1].kind = LayerAction::Kind::kInherit;
  choice.keep = 0.5;
  usage.plan.Add(choice, 2000);  // 1000 tokens at 8: 125
  std::string text;
  AppendUsageJson(usage, &text);
  const Json json = Json::parse(text);
  EXPECT_EQ(json["kv_plan"], "kaizen: 2×int4; kaizen: 1×int4 1×inherit, keep 0.5");
  EXPECT_NEAR(json["kv_plan_ratio"].get<double>(), 3000. / 375, 1e-4);
  EXPECT_DOUBLE_EQ(json["kv_ratio_missed"].get<double>(), 0.25);
}

TEST(Reply, KvFiguresOfNothingAreNull) {
  std::string text;
  AppendUsageJson(Usage{}, &text);
  const Json json = Json::parse(text);
  EXPECT_TRUE(json["kv_ratio"].is_null());
  EXPECT_TRUE(json["kv_payload_bits"].is_null());
  EXPECT_EQ(json["kv_bytes"], 0);
}

std::vector<ScoredToken> SomeTokens() {
  return {{.bytes = "he", .logprob = -0.5f, .top = {{"he", -0.5f}, {"she", -1.5f}}},
          {.bytes = "\xf0\x9f", .logprob = -INFINITY, .top = {{"\xf0\x9f", -1.0f}, {"\xf0", -2.0f}}},
          {.bytes = "y", .logprob = -2, .top = {}}};
}

TEST(Reply, ChatLogprobs) {
  std::string out;
  Format(ReplyKind::kChat, false, true, 2).AppendDelta(0, "he", SomeTokens(), 0, &out);
  const Json content = Events(out)[0]["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["token"], "he");
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["bytes"], Json::parse("[104,101]"));
  EXPECT_EQ(content[0]["top_logprobs"][1]["token"], "she");
  EXPECT_EQ(content[1]["token"], "\xEF\xBF\xBD") << "half a character is shown as U+FFFD";
  EXPECT_EQ(content[1]["bytes"], Json::parse("[240,159]")) << "and told in bytes";
  EXPECT_EQ(content[1]["logprob"], -9999) << "JSON has no infinity";
}

TEST(Reply, TextLogprobs) {
  const ReplyFormat format = Format(ReplyKind::kCompletion, false, true, 2);
  std::string out;
  format.AppendDelta(0, "he", SomeTokens(), 7, &out);
  const Json event = Events(out)[0];
  EXPECT_EQ(event["object"], "text_completion");
  EXPECT_EQ(event["choices"][0]["text"], "he");
  const Json logprobs = event["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json::parse("[\"he\",\"\xEF\xBF\xBD\",\"y\"]"));
  EXPECT_EQ(logprobs["token_logprobs"], Json::parse("[-0.5,-9999,-2]"));
  EXPECT_EQ(logprobs["text_offset"], Json::parse("[7,9,10]"));
  EXPECT_EQ(logprobs["top_logprobs"][0], Json::parse(R"({"he":-0.5,"she":-1.5})"));
  EXPECT_EQ(logprobs["top_logprobs"][1].size(), 1u) << "two with one name: the better one";
}

TEST(Reply, Whole) {
  const std::vector<Answer> answers = {{.text = "a", .logprobs = {}, .finish_reason = "stop"}, {.text = "\"b\"", .logprobs = {}, .finish_reason = "length"}};
  const Json chat = Json::parse(Format(ReplyKind::kChat).Whole(answers, SomeUsage()));
  EXPECT_EQ(chat["object"], "chat.completion");
  EXPECT_EQ(chat["choices"][1]["message"]["content"], "\"b\"");
  EXPECT_EQ(chat["choices"][1]["index"], 1);
  EXPECT_EQ(chat["choices"][1]["finish_reason"], "length");
  EXPECT_TRUE(chat["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(chat["usage"]["prompt_tokens"], 10);
  const Json text = Json::parse(Format(ReplyKind::kCompletion).Whole(answers, SomeUsage()));
  EXPECT_EQ(text["object"], "text_completion");
  EXPECT_EQ(text["choices"][0]["text"], "a");
}

TEST(Reply, ErrorEvent) {
  std::string out;
  ReplyFormat::AppendError({.status = 503, .message = "worker w0 was lost", .code = "worker_unavailable"}, &out);
  const Json event = Events(out)[0];
  EXPECT_EQ(event["error"]["message"], "worker w0 was lost");
  EXPECT_EQ(event["error"]["type"], "server_error");
  EXPECT_EQ(event["error"]["code"], "worker_unavailable");
}

}  // namespace
}  // namespace stria
