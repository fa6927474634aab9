// API keys in the real scheduler process: whom they let in, and who shares what with whom.
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "services/scheduler/process_fixture.h"

namespace stria {
namespace {

using TenantsProcessTest = SchedulerProcessTest;

TEST_F(TenantsProcessTest, KeysGuardEveryRouteButProbesAndMetrics) {
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

TEST_F(TenantsProcessTest, WhoSharesPromptsWithWhom) {
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
