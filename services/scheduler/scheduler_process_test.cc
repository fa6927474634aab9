// The real scheduler process between a real HTTP client and a fake worker on a real socket.
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/common/http_client.h"
#include "services/scheduler/scheduler_process.h"
#include "services/scheduler/worker_thread.h"

namespace stria {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr char kAnswer[] = "One 😀 two é three. END of it.";

// The answer byte by byte, then the end of turn.
int32_t Says(const StartSequence&, uint32_t index) {
  return index < sizeof kAnswer - 1 ? static_cast<unsigned char>(kAnswer[index]) : kTestEnd;
}
// Never ends by itself.
int32_t SaysForEver(const StartSequence&, uint32_t index) { return 'a' + static_cast<int32_t>(index % 26); }

FakeWorkerOptions Options(uint64_t incarnation = 1) {
  FakeWorkerOptions options;
  options.incarnation = incarnation;
  options.vocab = kTestVocab;
  options.says = Says;
  return options;
}

bool Eventually(const std::function<bool()>& condition, int seconds = 20) {
  for (int i = 0; i < seconds * 100; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return condition();
}

struct Stream {
  std::vector<Json> events;
  bool done = false;
  int status = 0;
  std::string text(size_t index = 0) const {
    std::string text;
    for (const Json& event : events) {
      if (!event.contains("choices")) continue;
      for (const Json& choice : event["choices"]) {
        if (choice["index"] != index) continue;
        text += choice.contains("delta") ? choice["delta"].value("content", "") : choice["text"].get<std::string>();
      }
    }
    return text;
  }
  std::string finish(size_t index = 0) const {
    for (const Json& event : events) {
      for (const Json& choice : event.value("choices", Json::array())) {
        if (choice["index"] == index && !choice["finish_reason"].is_null()) return choice["finish_reason"];
      }
    }
    return "";
  }
};

class SchedulerProcessTest : public testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {}) {
    scheduler_ = std::make_unique<SchedulerProcess>(std::move(flags));
  }
  void AddWorker(FakeWorkerOptions options = Options(), double loss = 0) {
    worker_ = std::make_unique<WorkerThread>(scheduler_->workers(), options, loss);
    ASSERT_TRUE(Eventually([&] { return Get("/health").status == 200; }));
  }
  std::unique_ptr<HttpClient> Client() const { return *HttpClient::Create(scheduler_->url(), 30); }
  HttpReply Get(const std::string& path) const {
    auto reply = Client()->Get(path);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : HttpReply{};
  }
  HttpReply Post(const std::string& path, const Json& body) const {
    auto reply = Client()->Request("POST", path, body.dump());
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? *reply : HttpReply{};
  }
  Stream PostStream(const std::string& path, const Json& body) const {
    Stream stream;
    std::string all;
    const auto reply = Client()->Stream("POST", path, body.dump(), {}, [&](std::string_view piece) {
      all += piece;
      return true;
    });
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (reply.ok()) stream.status = reply->status;
    for (size_t at = 0, end; (end = all.find("\n\n", at)) != std::string::npos; at = end + 2) {
      const std::string data = all.substr(at + 6, end - at - 6);
      if (data == "[DONE]") {
        stream.done = true;
      } else {
        stream.events.push_back(Json::parse(data));
      }
    }
    return stream;
  }
  static Json Chat(const std::string& more = "{}") {
    Json body = Json::parse(R"({"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 100})");
    body.update(Json::parse(more));
    return body;
  }
  double Metric(const std::string& line) const {
    const std::string text = Get("/metrics").body;
    const size_t at = text.find(absl::StrCat("\n", line, " "));
    return at == std::string::npos ? -1 : std::stod(text.substr(at + line.size() + 2));
  }

  std::unique_ptr<SchedulerProcess> scheduler_;
  std::unique_ptr<WorkerThread> worker_;
};

TEST_F(SchedulerProcessTest, StreamsWhatItWouldAnswerWhole) {
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

TEST_F(SchedulerProcessTest, LengthStopsAndChoices) {
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

TEST_F(SchedulerProcessTest, Logprobs) {
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

TEST_F(SchedulerProcessTest, CompletionsOfTextsAndIds) {
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

TEST_F(SchedulerProcessTest, Score) {
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

TEST_F(SchedulerProcessTest, SmallRoutesAndErrors) {
  Start();
  AddWorker();
  EXPECT_EQ(Json::parse(Get("/v1/models").body)["data"][0]["id"], "fake");
  const Json tokens = Json::parse(Post("/tokenize", Json::parse(R"({"prompt": "a<|im_end|>"})")).body);
  EXPECT_EQ(tokens["count"], 11) << "a control token's name in a user's text is text";
  EXPECT_EQ(Json::parse(Post("/detokenize", Json::parse(R"({"tokens": [97, 256, 259]})")).body)["prompt"], "ahello<|im_end|>");
  const Json turns = Json::parse(Post("/tokenize", Json::parse(R"({"messages": [{"role": "user", "content": "hi"}]})")).body);
  EXPECT_EQ(turns["tokens"][0], kTestTurn);
  EXPECT_EQ(Json::parse(Get("/config").body)["queue-limit"].dump(), Json::parse(Get("/config").body)["queue-limit"].dump());
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

TEST_F(SchedulerProcessTest, AClientThatGoesStopsItsWork) {
  Start();
  FakeWorkerOptions options = Options();
  options.says = SaysForEver;
  options.max_sequences = 1;
  AddWorker(options);
  std::thread waiting;
  {
    int pieces = 0;
    const auto reply = Client()->Stream("POST", "/v1/chat/completions", Chat(R"({"stream": true, "max_tokens": 8000})").dump(), {},
                                        [&](std::string_view) {
                                          if (++pieces == 2) {
                                            // A second request waits behind the first, and its client goes too.
                                            waiting = std::thread([this] {
                                              const auto slow = HttpClient::Create(scheduler_->url(), 4);
                                              EXPECT_FALSE((*slow)->Request("POST", "/v1/chat/completions", Chat().dump()).ok());
                                            });
                                            EXPECT_TRUE(Eventually([&] { return Metric("stria_scheduler_queue_size") == 1; }));
                                            waiting.join();
                                            EXPECT_TRUE(Eventually([&] { return Metric("stria_scheduler_queue_size") == 0; }));
                                          }
                                          return pieces < 10;
                                        });
    EXPECT_TRUE(reply.ok());
  }
  EXPECT_TRUE(Eventually([&] { return worker_->used_bytes() == 0 && worker_->remembered() == 0; }));
  EXPECT_EQ(worker_->starts(), 1u) << "the waiting one never ran";
  EXPECT_EQ(Metric("stria_scheduler_requests_total{outcome=\"cancelled\"}"), 2);
  EXPECT_EQ(Metric("stria_scheduler_running"), 0);
}

TEST_F(SchedulerProcessTest, AFullQueueIs429AndWaitingIsBounded) {
  Start({"--queue-limit", "1", "--queue-timeout", "3"});
  FakeWorkerOptions options = Options();
  options.says = SaysForEver;
  options.max_sequences = 1;
  AddWorker(options);
  worker_->Pause(true);
  std::thread runs([&] { EXPECT_EQ(PostStream("/v1/chat/completions", Chat(R"({"stream": true, "max_tokens": 20})")).text().size(), 20u); });
  ASSERT_TRUE(Eventually([&] { return worker_->sequences() == 1; }));
  std::thread waits([&] {
    const HttpReply reply = Post("/v1/chat/completions", Chat(R"({"stream": true})"));
    EXPECT_EQ(reply.status, 503);
    EXPECT_TRUE(absl::StrContains(reply.body, "queue_timeout")) << reply.body;
  });
  ASSERT_TRUE(Eventually([&] { return Metric("stria_scheduler_queue_size") == 1; }));
  const HttpReply refused = Post("/v1/chat/completions", Chat());
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(absl::StrContains(refused.body, "rate_limit_error")) << refused.body;
  bool retry = false;
  for (const auto& [name, value] : refused.headers) retry |= name == "retry-after" && std::stoi(value) >= 1;
  EXPECT_TRUE(retry);
  waits.join();
  worker_->Pause(false);
  runs.join();
}

TEST_F(SchedulerProcessTest, DeadlinesAndQueueTimeoutsOfRequests) {
  Start();
  FakeWorkerOptions options = Options();
  options.says = SaysForEver;
  options.max_sequences = 1;
  AddWorker(options);
  worker_->Pause(true);
  const auto code = [](const std::string& body) { return Json::parse(body)["error"].value("code", ""); };
  std::thread runs([&] {
    const Stream stream = PostStream("/v1/chat/completions", Chat(R"({"stream": true, "deadline": 3})"));
    EXPECT_EQ(stream.status, 200) << "it had begun";
    EXPECT_EQ(stream.events.back()["error"]["code"], "deadline_exceeded");
    EXPECT_FALSE(stream.done);
  });
  ASSERT_TRUE(Eventually([&] { return worker_->sequences() == 1; }));
  std::thread waits([&] {
    const HttpReply reply = Post("/v1/chat/completions", Chat(R"({"deadline": 2})"));
    EXPECT_EQ(reply.status, 504);
    EXPECT_EQ(code(reply.body), "deadline_exceeded");
  });
  const HttpReply reply = Post("/v1/completions", Json::parse(R"({"prompt": "x", "queue_timeout": 0.5})"));
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(code(reply.body), "queue_timeout");
  waits.join();
  runs.join();
  worker_->Pause(false);
  EXPECT_TRUE(Eventually([&] { return worker_->used_bytes() == 0 && worker_->remembered() == 0; }));
}

TEST_F(SchedulerProcessTest, KeysGuardEveryRouteButProbesAndMetrics) {
  const std::string keys = absl::StrCat(std::getenv("TEST_TMPDIR"), "/keys.", getpid());
  std::ofstream(keys) << "ada sk-0123456789abcdef 2\nbob sk-fedcba9876543210\n";
  Start({"--api-keys-file", keys, "--queue-limit", "4"});
  FakeWorkerOptions options = Options();
  options.max_sequences = 1;
  AddWorker(options);
  for (const char* open : {"/health", "/ready", "/live", "/metrics"}) EXPECT_EQ(Get(open).status, 200) << open;
  const HttpHeaders good = {{"Authorization", "Bearer sk-0123456789abcdef"}};
  for (const HttpHeaders& bad : {HttpHeaders{}, HttpHeaders{{"Authorization", "Bearer sk-0123456789abcdee"}}, HttpHeaders{{"Authorization", "Basic eDp5"}}}) {
    for (const char* path : {"/v1/models", "/v1/status", "/config", "/no/such/path", "/v1/chat/completions"}) {
      const auto reply = Client()->Request("GET", path, "", bad);
      ASSERT_TRUE(reply.ok());
      EXPECT_EQ(reply->status, 401) << path;
      EXPECT_EQ(Json::parse(reply->body)["error"]["type"], "authentication_error");
    }
    for (const char* path : {"/v1/chat/completions", "/v1/completions", "/v1/score", "/tokenize", "/detokenize"}) {
      const auto reply = Client()->Request("POST", path, std::string(100000, 'x'), bad);
      ASSERT_TRUE(reply.ok()) << reply.status();
      EXPECT_EQ(reply->status, 401) << path;
    }
  }
  EXPECT_EQ(Client()->Request("GET", "/v1/models", "", good)->status, 200);
  const auto answer = Client()->Request("POST", "/v1/chat/completions", Chat().dump(), good);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(Json::parse(answer->body)["choices"][0]["message"]["content"], kAnswer);

  // One key leaves half of the queue to others.
  worker_->Pause(true);
  std::vector<std::thread> waiting;
  const auto ask = [&](const std::string& key) {
    return Client()->Request("POST", "/v1/chat/completions", Chat(R"({"max_tokens": 3})").dump(), {{"Authorization", "Bearer " + key}});
  };
  for (int i = 0; i < 3; ++i) {
    waiting.emplace_back([&] { EXPECT_EQ(ask("sk-0123456789abcdef")->status, 200); });
    ASSERT_TRUE(Eventually([&] { return Metric("stria_scheduler_queue_size") == i; }));
    ASSERT_TRUE(Eventually([&] { return worker_->sequences() == 1; }));
  }
  EXPECT_EQ(ask("sk-0123456789abcdef")->status, 429);
  waiting.emplace_back([&] { EXPECT_EQ(ask("sk-fedcba9876543210")->status, 200); });
  ASSERT_TRUE(Eventually([&] { return Metric("stria_scheduler_queue_size") == 3; }));
  worker_->Pause(false);
  for (std::thread& thread : waiting) thread.join();

  for (const std::string& text : {scheduler_->Log(), Get("/metrics").body, Client()->Request("GET", "/config", "", good)->body}) {
    EXPECT_FALSE(absl::StrContains(text, "0123456789abcde")) << "keys are shown nowhere";
  }
}

TEST_F(SchedulerProcessTest, LostAndDoubledMessagesDoNotShow) {
  Start();
  AddWorker(Options(), /*loss=*/0.15);
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const bool ok = i % 2 == 0 ? PostStream("/v1/chat/completions", Chat(R"({"stream": true})")).text() == kAnswer
                                 : Json::parse(Post("/v1/chat/completions", Chat()).body)["choices"][0]["message"]["content"] == kAnswer;
      right += ok;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 6);
  EXPECT_TRUE(Eventually([&] { return worker_->remembered() == 0; }));
}

TEST_F(SchedulerProcessTest, AWorkerDiesAndItsStreamsGoOnWithTheNextOne) {
  Start();
  FakeWorkerOptions options = Options();
  options.says = SaysForEver;
  options.pool_bytes = uint64_t{1} << 30;  // for both at once
  AddWorker(options);
  std::string expected;
  for (uint32_t i = 0; i < 3000; ++i) expected += static_cast<char>(SaysForEver({}, i));
  std::string whole;
  Stream stream;
  std::thread first([&] {
    const HttpReply reply = Post("/v1/chat/completions", Chat(R"({"max_tokens": 3000})"));
    EXPECT_EQ(reply.status, 200) << reply.body;
    whole = Json::parse(reply.body)["choices"][0]["message"]["content"];
  });
  std::thread second([&] {
    stream = PostStream("/v1/chat/completions", Chat(R"({"stream": true, "max_tokens": 3000, "stream_options": {"include_usage": true}})"));
  });
  ASSERT_TRUE(Eventually([&] { return worker_->sequences() == 2; }));
  ASSERT_TRUE(Eventually([&] { return Metric("stria_scheduler_generated_tokens_total") > 100; }));
  worker_.reset();  // dead
  ASSERT_TRUE(Eventually([&] { return Get("/health").status == 503; })) << "nobody is there";
  options.incarnation = 2;
  AddWorker(options);
  first.join();
  second.join();
  EXPECT_EQ(whole, expected);
  EXPECT_EQ(stream.text(), expected) << "nothing twice, nothing missing";
  EXPECT_TRUE(stream.done);
  EXPECT_EQ(stream.events.back()["usage"]["completion_tokens"], 3000);
  EXPECT_EQ(Metric("stria_scheduler_failovers_total"), 2);
  EXPECT_EQ(Metric("stria_scheduler_workers_lost_total"), 1);
  const Json status = Json::parse(Get("/v1/status").body);
  EXPECT_EQ(status["workers"][0]["state"], "serving");
  EXPECT_EQ(status["workers"][0]["breaker"]["state"], "closed");
}

TEST_F(SchedulerProcessTest, TerminatedItLetsStreamsEnd) {
  Start({"--drain-seconds", "20"});
  AddWorker();
  worker_->Pause(true);
  Stream stream;
  std::thread streamed([&] { stream = PostStream("/v1/chat/completions", Chat(R"({"stream": true})")); });
  ASSERT_TRUE(Eventually([&] { return worker_->sequences() == 1; }));
  std::thread resume([&] {
    EXPECT_TRUE(Eventually([&] { return absl::StrContains(scheduler_->Log(), "draining"); }));
    EXPECT_EQ(Get("/ready").status, 503);
    EXPECT_EQ(Post("/v1/chat/completions", Chat()).status, 503);
    worker_->Pause(false);
  });
  EXPECT_EQ(scheduler_->Stop(SIGTERM), 0);
  streamed.join();
  resume.join();
  EXPECT_TRUE(stream.done);
  EXPECT_EQ(stream.text(), kAnswer);
}

TEST_F(SchedulerProcessTest, CachedTokensAreTold) {
  FakeWorkerOptions options = Options();
  options.cached_tokens = 3;
  Start();
  AddWorker(options);
  const Json body = {{"model", "fake"}, {"prompt", {"abcde", "ab"}}, {"n", 2}, {"max_tokens", 2}};
  const Json usage = Json::parse(Post("/v1/completions", body).body)["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 7);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 5) << "three of the first prompt, and no more than all of the second";
}

TEST_F(SchedulerProcessTest, WhoSharesPromptsWithWhom) {
  const std::string keys = absl::StrCat(std::getenv("TEST_TMPDIR"), "/keys.", getpid());
  std::ofstream(keys) << "ada sk-0123456789abcdef\nada sk-0123456789abcde2\nbob sk-fedcba9876543210\n";
  FakeWorkerOptions options = Options();
  std::mutex mutex;
  std::pair<bool, std::string> last;  // of the last sequence: whether it shares, its salt
  options.says = [&](const StartSequence& start, uint32_t index) {
    const std::lock_guard lock(mutex);
    last = {start.share_prefix, start.cache_salt};
    return Says(start, index);
  };
  const auto ask = [&](const std::string& more, const std::string& key) {
    HttpHeaders headers;
    if (!key.empty()) headers.emplace_back("Authorization", "Bearer " + key);
    EXPECT_EQ(Client()->Request("POST", "/v1/chat/completions", Chat(more).dump(), headers)->status, 200);
    const std::lock_guard lock(mutex);
    return last;
  };
  Start();
  AddWorker(options);
  EXPECT_EQ(ask("{}", ""), std::pair(true, std::string()));
  EXPECT_FALSE(ask(R"({"cache_prompt": false})", "").first);
  std::set<std::string> apart = {"", ask(R"({"cache_salt": "x"})", "").second, ask(R"({"cache_salt": "y"})", "").second};
  EXPECT_EQ(apart.size(), 3u);
  worker_.reset();  // before what its answers write to

  Start({"--api-keys-file", keys});
  AddWorker(options);
  const std::string ada = ask("{}", "sk-0123456789abcdef").second;
  EXPECT_EQ(ask("{}", "sk-0123456789abcde2").second, ada) << "two keys of one tenant";
  EXPECT_EQ(ask(R"({"cache_salt": ""})", "sk-0123456789abcdef").second, ada);
  apart.insert({ada, ask("{}", "sk-fedcba9876543210").second, ask(R"({"cache_salt": "x"})", "sk-0123456789abcdef").second,
                ask(R"({"cache_salt": "x"})", "sk-fedcba9876543210").second});
  EXPECT_EQ(apart.size(), 7u);
  worker_.reset();
}

}  // namespace
}  // namespace stria
