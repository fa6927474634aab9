// The real scheduler process when clients go, the queue is full, messages are lost, the worker dies, or it is terminated.
#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "services/scheduler/process_fixture.h"

namespace stria {
namespace {

using FaultsProcessTest = SchedulerProcessTest;

TEST_F(FaultsProcessTest, AClientThatGoesStopsItsWork) {
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

TEST_F(FaultsProcessTest, AFullQueueIs429AndWaitingIsBounded) {
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

TEST_F(FaultsProcessTest, DeadlinesAndQueueTimeoutsOfRequests) {
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

TEST_F(FaultsProcessTest, LostAndDoubledMessagesDoNotShow) {
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

TEST_F(FaultsProcessTest, AWorkerDiesAndItsStreamsGoOnWithTheNextOne) {
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

TEST_F(FaultsProcessTest, TerminatedItLetsStreamsEnd) {
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

}  // namespace
}  // namespace stria
