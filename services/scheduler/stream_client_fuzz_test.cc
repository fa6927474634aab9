// Clients of streams that behave as they please: kept scripts (testdata/clients.txt) and seeded mutations of them, many at once, against the
// real scheduler process. What a client did read is the beginning of its right answer, one that waited for the end got all of it, and
// when all are gone nothing of them is left.
//
// A script is a kind of request and steps. Kinds: `short` and `long` stream, `whole` does not, `old` streams over HTTP/1.0. Steps: `send P` up to
// P percent of the request, `again` the whole request once more behind it, `read N` up to N bytes, `wait N` milliseconds, `half` closes
// the sending side, and at the end `end` reads to the end, `close` closes, `reset` resets.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/fuzz.h"
#include "services/scheduler/process_fixture.h"

namespace stria {
namespace {

using StreamClientFuzzTest = SchedulerProcessTest;

constexpr uint32_t kLong = 400;  // tokens of a long answer
constexpr int kAtOnce = 12;

// Short answers end by themselves, long ones at their limit.
int32_t SaysByLength(const StartSequence& start, uint32_t index) {
  return start.max_new_tokens == kLong ? SaysForEver(start, index) : Says(start, index);
}

std::string AnswerOf(const std::string& kind) {
  if (kind != "long") return kAnswer;
  std::string answer;
  for (uint32_t i = 0; i < kLong; ++i) answer += static_cast<char>(SaysForEver({}, i));
  return answer;
}

std::string RequestOf(const std::string& kind, const Json& chat) {
  Json body = chat;
  body["stream"] = kind != "whole";
  if (kind == "long") {  // much text for each token, so that slow readers fill what lies between
    body["max_tokens"] = kLong;
    body["logprobs"] = true;
    body["top_logprobs"] = 20;
  }
  const std::string text = body.dump();
  return absl::StrCat("POST /v1/chat/completions HTTP/1.", kind == "old" ? 0 : 1, "\r\nHost: h\r\nContent-Length: ", text.size(), "\r\n\r\n", text);
}

// The body of the first reply in `bytes` as far as it came; complete: all of it is there.
struct Reply {
  std::string body;
  bool complete = false;
};
Reply FirstReply(const std::string& bytes, bool closed) {
  Reply reply;
  size_t at = bytes.find("\r\n\r\n");
  if (at == std::string::npos) return reply;
  const std::string head = bytes.substr(0, at);
  at += 4;
  if (const size_t length = head.find("Content-Length: "); length != std::string::npos) {
    const size_t size = std::stoul(head.substr(length + 16));
    reply.body = bytes.substr(at, size);
    reply.complete = reply.body.size() == size;
  } else if (absl::StrContains(head, "Transfer-Encoding: chunked")) {
    while (true) {
      const size_t line = bytes.find("\r\n", at);
      if (line == std::string::npos) return reply;
      const size_t size = std::stoul(bytes.substr(at, line - at), nullptr, 16);
      reply.complete = size == 0;
      if (reply.complete) return reply;
      reply.body += bytes.substr(std::min(line + 2, bytes.size()), size);
      at = line + 2 + size + 2;
      if (at > bytes.size()) return reply;
    }
  } else {
    reply.body = bytes.substr(at);
    reply.complete = closed;
  }
  return reply;
}

std::string TextOf(const std::string& kind, const Reply& reply) {
  if (kind == "whole") {
    return reply.complete ? Json::parse(reply.body)["choices"][0]["message"]["content"].get<std::string>() : "";
  }
  std::string text;
  for (size_t at = 0, end; (end = reply.body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string data = reply.body.substr(at + 6, end - at - 6);
    if (data == "[DONE]") break;
    const Json event = Json::parse(data);
    EXPECT_FALSE(event.contains("error")) << data;
    for (const Json& choice : event.value("choices", Json::array())) text += choice["delta"].value("content", "");
  }
  return text;
}

class RawClient {
 public:
  RawClient(uint16_t port, std::string request) : request_(std::move(request)), socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int small = 4096;
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    const timeval patience{30, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~RawClient() {
    if (socket_ >= 0) close(socket_);
  }

  // False after the last step.
  bool Do(const std::string& step, int number) {
    if (step == "send") {
      Send(std::string_view(request_).substr(0, request_.size() * std::min(number, 100) / 100), sent_);
    } else if (step == "again") {
      if (sent_ == request_.size()) Send(request_, 0);
    } else if (step == "read") {
      Read(number);
    } else if (step == "wait") {
      std::this_thread::sleep_for(milliseconds(number));
    } else if (step == "half") {
      half_ = true;
      shutdown(socket_, SHUT_WR);
    } else if (step == "end") {
      // One that did not ask to the end would wait for the server's patience, not for an answer.
      while (sent_ == request_.size() && !reply().complete && Read(4096)) {
      }
      waited_ = sent_ == request_.size() && !half_;
      return false;
    } else {
      if (step == "reset") {
        const linger now{1, 0};
        setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
      }
      return false;
    }
    return true;
  }

  bool waited() const { return waited_; }  // for its answer, without a sign of leaving
  Reply reply() const { return FirstReply(bytes_, closed_); }

 private:
  void Send(std::string_view bytes, size_t from) {
    if (half_) return;
    for (size_t at = from; at < bytes.size();) {
      const ssize_t count = send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (count <= 0) return;
      at += count;
      sent_ = std::max(sent_, at);
    }
  }
  bool Read(int most) {
    std::string buffer(most, '\0');
    const bool owed = sent_ == request_.size() && !reply().complete;  // the server will say something, or close
    const ssize_t count = recv(socket_, buffer.data(), buffer.size(), owed ? 0 : MSG_DONTWAIT);
    if (count > 0) bytes_.append(buffer, 0, count);
    closed_ |= count == 0 && most > 0;
    return count > 0;
  }

  const std::string request_;
  int socket_;
  size_t sent_ = 0;
  std::string bytes_;
  bool half_ = false, closed_ = false, waited_ = false;
};

// Steps of one script cut, doubled, exchanged, taken from others, numbers changed.
std::string Mutate(const std::vector<std::string>& corpus, ByteMutator& random) {
  const auto words = [&] { return std::vector<std::string>(absl::StrSplit(corpus[random.Draw(corpus.size())], ' ')); };
  std::vector<std::string> script = words();
  for (uint64_t changes = random.Draw(4); changes > 0; --changes) {
    const size_t at = 1 + random.Draw(script.size());
    const std::vector<std::string> other = words();
    const size_t from = 1 + random.Draw(other.size() - 1), count = 1 + random.Draw(4);
    switch (random.Draw(3)) {
      case 0: script.erase(script.begin() + at - (at == script.size()), script.end()); break;
      case 1: script.insert(script.begin() + at, other.begin() + from, other.begin() + std::min(other.size(), from + count)); break;
      default: {
        int number;
        if (at < script.size() && absl::SimpleAtoi(script[at], &number)) script[at] = absl::StrCat(random.Draw(2 * number + 2));
      }
    }
    if (script.empty() || (script[0] != "short" && script[0] != "long" && script[0] != "whole" && script[0] != "old")) script = words();
  }
  return absl::StrJoin(script, " ");
}

TEST_F(StreamClientFuzzTest, WhateverClientsDoOthersGetTheirsAndNothingStays) {
  Start();
  FakeWorkerOptions options = Options();
  options.says = SaysByLength;
  options.pool_bytes = uint64_t{1} << 30;
  AddWorker(options);
  const uint16_t port = static_cast<uint16_t>(std::stoi(scheduler_->url().substr(scheduler_->url().rfind(':') + 1)));
  std::ifstream file("services/scheduler/testdata/clients.txt");
  std::vector<std::string> scripts;
  for (std::string line; std::getline(file, line);) scripts.push_back(line);
  ASSERT_GE(scripts.size(), 20u);
  ByteMutator random(scripts, 20262);
  const std::vector<std::string> corpus = scripts;
  while (scripts.size() < FuzzRounds(300)) scripts.push_back(Mutate(corpus, random));

  std::atomic<size_t> next = 0;
  std::atomic<int> waited = 0;
  const auto run = [&] {
    for (size_t i; (i = next++) < scripts.size();) {
      const std::vector<std::string> words = absl::StrSplit(scripts[i], ' ');
      RawClient client(port, RequestOf(words[0], Chat()));
      for (size_t at = 1; at < words.size(); ++at) {
        int number = 0;
        if (absl::SimpleAtoi(words[at], &number)) continue;  // a step's
        if (at + 1 < words.size() && !absl::SimpleAtoi(words[at + 1], &number)) number = 0;
        if (!client.Do(words[at], number)) break;
      }
      const Reply reply = client.reply();
      const std::string text = TextOf(words[0], reply), answer = AnswerOf(words[0]);
      EXPECT_TRUE(absl::StartsWith(answer, text)) << scripts[i] << ": " << text;
      EXPECT_TRUE(!client.waited() || (reply.complete && text == answer)) << scripts[i] << ": " << text;
      waited += client.waited();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kAtOnce; ++i) threads.emplace_back(run);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(waited, static_cast<int>(scripts.size() / 10));
  EXPECT_LT(waited, static_cast<int>(scripts.size() * 9 / 10));

  EXPECT_TRUE(Eventually([&] { return worker_->sequences() == 0 && worker_->used_bytes() == 0 && worker_->remembered() == 0; }));
  EXPECT_TRUE(Eventually([&] { return Metric("stria_scheduler_running") == 0 && Metric("stria_scheduler_queue_size") == 0; }));
  EXPECT_EQ(PostStream("/v1/chat/completions", Chat(R"({"stream": true})")).text(), kAnswer);
  EXPECT_FALSE(absl::StrContains(scheduler_->Log(), "threw"));
  EXPECT_EQ(scheduler_->Stop(SIGTERM), 0);
}

}  // namespace
}  // namespace stria
