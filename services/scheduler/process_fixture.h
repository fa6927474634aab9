// What tests of the scheduler process share: the real process, a fake worker on a real socket, and a client that reads streams.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "services/common/http_client.h"
#include "services/scheduler/scheduler_process.h"
#include "services/scheduler/worker_thread.h"

namespace stria {

using Json = nlohmann::json;
using std::chrono::milliseconds;

inline constexpr char kAnswer[] = "One 😀 two é three. END of it.";

// The answer byte by byte, then the end of turn.
inline int32_t Says(const StartSequence&, uint32_t index) {
  return index < sizeof kAnswer - 1 ? static_cast<unsigned char>(kAnswer[index]) : kTestEnd;
}
// Never ends by itself.
inline int32_t SaysForEver(const StartSequence&, uint32_t index) { return 'a' + static_cast<int32_t>(index % 26); }

inline FakeWorkerOptions Options(uint64_t incarnation = 1) {
  FakeWorkerOptions options;
  options.incarnation = incarnation;
  options.vocab = kTestVocab;
  options.says = Says;
  return options;
}

inline bool Eventually(const std::function<bool()>& condition, int seconds = 20) {
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

}  // namespace stria
