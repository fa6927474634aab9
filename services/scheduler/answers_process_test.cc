// What clients are answered: the real scheduler process between a real HTTP client and a fake worker on a real socket.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "absl/strings/match.h"
#include "services/scheduler/process_fixture.h"

namespace stria {
namespace {

using AnswersProcessTest = SchedulerProcessTest;

TEST_F(AnswersProcessTest, StreamsWhatItWouldAnswerWhole) {
  Start();
  EXPECT_EQ(Get("/health").status, 503);
  EXPECT_EQ(Get("/live").status, 200);
  EXPECT_EQ(Post("/v1/chat/completions", Chat()).status, 503) << "no worker is there";
  AddWorker();
  const HttpReply reply = Post("/v1/chat/completions", Chat());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json whole = Json::parse(reply.body);
  EXPECT_EQ(whole["choices"][0]["message"]["content"], kAnswer);
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(whole["usage"]["completion_tokens"], sizeof kAnswer) << "the end token counts";
  EXPECT_EQ(whole["usage"]["kv_plan"], "auto");
  EXPECT_GT(whole["usage"]["kv_bytes"], 0);
  const Stream stream = PostStream("/v1/chat/completions", Chat(R"({"stream": true, "stream_options": {"include_usage": true}})"));
  EXPECT_TRUE(stream.done);
  EXPECT_EQ(stream.text(), kAnswer);
  EXPECT_EQ(stream.finish(), "stop");
  EXPECT_EQ(stream.events.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(stream.events.back()["usage"], whole["usage"]);
  const Stream bare = PostStream("/v1/chat/completions", Chat(R"({"stream": true})"));
  EXPECT_TRUE(bare.done);
  EXPECT_EQ(bare.text(), kAnswer);
  EXPECT_FALSE(bare.events.back().contains("usage"));
}

TEST_F(AnswersProcessTest, LengthStopsAndChoices) {
  Start();
  AddWorker();
  const Json cut = Json::parse(Post("/v1/chat/completions", Chat(R"({"max_tokens": 5})")).body);
  EXPECT_EQ(cut["choices"][0]["message"]["content"], "One \xEF\xBF\xBD") << "cut inside a character";
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(cut["usage"]["completion_tokens"], 5);
  const std::string expected = "One 😀 two é three. ";
  for (const bool streaming : {false, true}) {
    Json body = Chat(R"({"stop": ["END", "never"], "n": 3})");
    if (streaming) {
      body["stream"] = true;
      body["stream_options"]["include_usage"] = true;
      const Stream stream = PostStream("/v1/chat/completions", body);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(stream.text(i), expected);
        EXPECT_EQ(stream.finish(i), "stop");
      }
      EXPECT_EQ(stream.events.back()["usage"]["completion_tokens"], 3 * (expected.size() + 3));
    } else {
      const Json reply = Json::parse(Post("/v1/chat/completions", body).body);
      ASSERT_EQ(reply["choices"].size(), 3u);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(reply["choices"][i]["index"], i);
        EXPECT_EQ(reply["choices"][i]["message"]["content"], expected);
      }
      EXPECT_EQ(reply["usage"]["completion_tokens"], 3 * (expected.size() + 3)) << "up to the token that completed the stop";
    }
    EXPECT_TRUE(Eventually([&] { return worker_->sequences() == 0 && worker_->remembered() == 0; })) << "the worker stops too";
  }
}

TEST_F(AnswersProcessTest, Logprobs) {
  Start();
  AddWorker();
  const Json chat = Json::parse(Post("/v1/chat/completions", Chat(R"({"logprobs": true, "top_logprobs": 2})")).body);
  const Json content = chat["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(content.size(), sizeof kAnswer - 1) << "those that the text is made of";
  std::string bytes;
  for (const Json& token : content) {
    EXPECT_EQ(token["top_logprobs"].size(), 2u);
    for (const Json& byte : token["bytes"]) bytes += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(bytes, kAnswer);
  const Stream stream = PostStream("/v1/chat/completions", Chat(R"({"logprobs": true, "top_logprobs": 2, "stream": true})"));
  Json streamed = Json::array();
  for (const Json& event : stream.events) {
    if (event["choices"].empty() || event["choices"][0]["logprobs"].is_null()) continue;
    for (const Json& token : event["choices"][0]["logprobs"]["content"]) streamed.push_back(token);
  }
  EXPECT_EQ(streamed, content);
  const Json text = Json::parse(Post("/v1/completions", Json::parse(R"({"model": "fake", "prompt": "x", "max_tokens": 3, "logprobs": 1})")).body);
  EXPECT_EQ(text["choices"][0]["logprobs"]["tokens"], Json::parse(R"(["O", "n", "e"])"));
  EXPECT_EQ(text["choices"][0]["logprobs"]["text_offset"], Json::parse("[0, 1, 2]"));
}

TEST_F(AnswersProcessTest, CompletionsOfTextsAndIds) {
  Start();
  AddWorker();
  const Json two = Json::parse(Post("/v1/completions", Json::parse(R"({"prompt": ["abc", "de"], "max_tokens": 4, "echo": true, "n": 2})")).body);
  ASSERT_EQ(two["choices"].size(), 4u);
  EXPECT_EQ(two["choices"][1]["text"], "abcOne ");
  EXPECT_EQ(two["choices"][2]["text"], "deOne ");
  EXPECT_EQ(two["usage"]["prompt_tokens"], 5) << "each prompt once";
  EXPECT_EQ(two["usage"]["completion_tokens"], 16);
  const Json ids = Json::parse(Post("/v1/completions", Json::parse(R"({"prompt": [97, 98], "max_tokens": 4, "echo": true})")).body);
  EXPECT_EQ(ids["choices"][0]["text"], "abOne ");
  const Stream stream = PostStream("/v1/completions", Json::parse(R"({"prompt": "abc", "max_tokens": 4, "echo": true, "stream": true})"));
  EXPECT_EQ(stream.text(), "abcOne ");
}

TEST_F(AnswersProcessTest, Score) {
  Start();
  AddWorker();
  const HttpReply reply = Post("/v1/score", Json::parse(R"({"prompt": ["abcd", [97, 98]], "kv": {"mode": "int2"}, "top_logprobs": 1})"));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json score = Json::parse(reply.body);
  EXPECT_EQ(score["choices"][0]["tokens"], Json::parse("[97, 98, 99, 100]"));
  EXPECT_EQ(score["choices"][0]["token_logprobs"], Json::parse("[null, -0.5, -0.5, -0.5]"));
  EXPECT_EQ(score["choices"][0]["logprob"], -1.5);
  EXPECT_NEAR(score["choices"][0]["perplexity"].get<double>(), 1.648721, 1e-5);  // e^0.5
  EXPECT_EQ(score["choices"][0]["top_logprobs"][1][0]["token"], 98);
  EXPECT_EQ(score["choices"][1]["tokens"].size(), 2u);
  EXPECT_EQ(score["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(score["usage"]["kv_plan"], "int2");
  EXPECT_EQ(Post("/v1/score", Json::parse(R"({"prompt": "a"})")).status, 400);
}

TEST_F(AnswersProcessTest, SmallRoutesAndErrors) {
  Start();
  AddWorker();
  EXPECT_EQ(Json::parse(Get("/v1/models").body)["data"][0]["id"], "fake");
  const Json tokens = Json::parse(Post("/tokenize", Json::parse(R"({"prompt": "a<|im_end|>"})")).body);
  EXPECT_EQ(tokens["count"], 11) << "a control token's name in a user's text is text";
  EXPECT_EQ(Json::parse(Post("/detokenize", Json::parse(R"({"tokens": [97, 256, 259]})")).body)["prompt"], "ahello<|im_end|>");
  const Json turns = Json::parse(Post("/tokenize", Json::parse(R"({"messages": [{"role": "user", "content": "hi"}]})")).body);
  EXPECT_EQ(turns["tokens"][0], kTestTurn);
  EXPECT_EQ(Json::parse(Get("/config").body)["queue-limit"], 1024);
  EXPECT_TRUE(absl::StrContains(Get("/metrics").body, "stria_scheduler_workers_ready 1"));

  const auto error = [&](const HttpReply& reply) { return Json::parse(reply.body)["error"]; };
  HttpReply reply = Post("/v1/chat/completions", Chat(R"({"model": "other"})"));
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(error(reply)["code"], "model_not_found");
  reply = Post("/v1/chat/completions", Chat(R"({"temperature": 9})"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error(reply)["param"], "temperature");
  EXPECT_EQ(error(reply)["type"], "invalid_request_error");
  reply = Post("/v1/chat/completions", Chat(R"({"max_tokens": 100000})"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_TRUE(absl::StrContains(error(reply)["message"].get<std::string>(), "8192"));
  EXPECT_EQ(Post("/v1/completions", Json::parse(R"({"prompt": ""})")).status, 400);
  EXPECT_EQ(Client()->Request("POST", "/v1/completions", "{\"prompt\": \"\xff\"}")->status, 400);
  EXPECT_EQ(Get("/v1/nothing").status, 404);
  EXPECT_EQ(Get("/v1/completions").status, 405);
  EXPECT_EQ(Metric("stria_scheduler_requests_total{outcome=\"refused\"}"), 5);
}

TEST_F(AnswersProcessTest, CachedTokensAreTold) {
  FakeWorkerOptions options = Options();
  options.cached_tokens = 3;
  Start();
  AddWorker(options);
  const Json body = {{"model", "fake"}, {"prompt", {"abcde", "ab"}}, {"n", 2}, {"max_tokens", 2}};
  const Json usage = Json::parse(Post("/v1/completions", body).body)["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 7);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 5) << "three of the first prompt, and no more than all of the second";
}

// The fake worker has four layers.
TEST_F(AnswersProcessTest, KaizenComposesFromThePack) {
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/pack.", getpid());
  std::filesystem::create_directory(folder);
  const auto write = [&](const std::string& fingerprint) {
    std::ofstream(folder + "/pack.json") << R"({"format": "stria-pack", "version": 1, "model": {"fingerprint": ")" << fingerprint << R"(", "layers": 4}, "kaizen":
      {"lossless_ratio": 2, "plans": [["fp16", "fp16", "fp16", "fp16"], ["int8", "int8", "int8", "int8"], ["int4", "inherit", "int4", "int4"]]}})";
  };
  write("0123456789abcdef");
  FakeWorkerOptions options = Options();
  std::mutex mutex;
  CachePlan last;
  options.says = [&](const StartSequence& start, uint32_t index) {
    const std::lock_guard lock(mutex);
    last = start.plan;
    return Says(start, index);
  };
  const auto ask = [&](const std::string& kv) {
    Json body = {{"model", "fake"}, {"prompt", std::string(640, 'x')}, {"max_tokens", 3}, {"kv", Json::parse(kv)}};
    return Post("/v1/completions", body);
  };
  Start({"--pack", folder});
  AddWorker(options);
  Json usage = Json::parse(ask(R"({"mode": "kaizen", "ratio": 8})").body)["usage"];
  EXPECT_EQ(usage["kv_plan"], "kaizen: 4×int8, keep 0.25");
  EXPECT_EQ(usage["kv_plan_ratio"], 8);
  EXPECT_FALSE(usage.contains("kv_ratio_missed"));
  EXPECT_EQ(last.keep_tokens, 160u);
  EXPECT_FALSE(last.widen);
  usage = Json::parse(ask(R"({"mode": "kaizen"})").body)["usage"];
  EXPECT_EQ(usage["kv_plan"], "kaizen: 4×fp16") << "memory is spare";
  EXPECT_TRUE(usage.contains("kv_ratio_missed"));
  EXPECT_EQ(last.keep_tokens, 0u);
  EXPECT_TRUE(last.widen);
  EXPECT_EQ(ask(R"({"mode": "kaizen", "ratio": 32, "keep": 0.5})").status, 400);
  EXPECT_EQ(Post("/v1/score", Json::parse(R"({"prompt": "abc", "kv": {"mode": "kaizen"}})")).status, 400);
  worker_.reset();  // before what its answers write to

  write("fedcba9876543210");
  Start({"--pack", folder});
  worker_ = std::make_unique<WorkerThread>(scheduler_->workers(), options);
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(scheduler_->Log(), "the pack is for fedcba9876543210"); })) << scheduler_->Log();
  EXPECT_EQ(Get("/health").status, 503) << "a worker of another model is turned away";
  worker_.reset();
}

}  // namespace
}  // namespace stria
