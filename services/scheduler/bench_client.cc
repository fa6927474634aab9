// A light client for measuring: N streams of text completions at once, tokens per second while all of them run, and the CPU time
// that the client itself took, since it shares the machine with what it measures: one thread, which looks for events in the bytes
// as they come and parses nothing else. Prints one JSON object.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/random.h"

namespace stria {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string kv = "auto";
  uint16_t port = 8000;
  int streams = 1, prompt_tokens = 32, max_tokens = 256, vocab = 40000;
  uint64_t seed = 1;
};

struct StreamResult {
  std::vector<double> arrivals;  // of each event with text
  double end = 0;
  std::string error;
};

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string Body(const Flags& flags, int stream) {
  Json body;
  // Ids from the middle of the vocabulary, others for each stream: no prefix is shared.
  for (int i = 0; i < flags.prompt_tokens; ++i) {
    body["prompt"].push_back(1000 + static_cast<int>(Uniform(flags.seed, static_cast<uint64_t>(stream), static_cast<uint64_t>(i)) * (flags.vocab - 1000)));
  }
  body["max_tokens"] = flags.max_tokens;
  body["temperature"] = 0;
  body["stream"] = true;
  body["ignore_eos"] = true;
  body["kv"]["mode"] = flags.kv;
  return body.dump();
}

// Notes the time of every event in an event stream that arrives in pieces.
class EventClock {
 public:
  explicit EventClock(StreamResult* result) : result_(result) {}

  // False when the stream is complete.
  bool Take(std::string_view piece) {
    constexpr std::string_view kEvent = "\ndata: ", kDone = "\ndata: [DONE]";
    const double now = Now();
    bytes_.append(piece);
    if (!seen_status_ && bytes_.size() >= kOk.size()) {
      seen_status_ = true;
      if (bytes_.compare(0, kOk.size(), kOk) != 0) result_->error = bytes_.substr(0, bytes_.find('\r'));
      if (!result_->error.empty()) return false;
    }
    // JSON has no bare line break, so an event's first line is found nowhere inside another.
    size_t at = 0, found;
    for (; (found = bytes_.find(kEvent, at)) != std::string::npos && bytes_.size() >= found + kDone.size(); at = found + 1) {
      if (bytes_.compare(found, kDone.size(), kDone) == 0) return false;
      result_->arrivals.push_back(now);
    }
    bytes_.erase(0, at);
    return true;
  }

 private:
  static constexpr std::string_view kOk = "HTTP/1.1 200";
  StreamResult* result_;
  std::string bytes_;  // not yet looked at, or the beginning of an event
  bool seen_status_ = false;
};

// A connection with the stream's request sent; -1 and an error otherwise.
int Begin(const Flags& flags, int stream, StreamResult* result) {
  const std::string body = Body(flags, stream);
  const std::string request = absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: ",
                                           body.size(), "\r\n\r\n", body);
  sockaddr_in server = {};
  server.sin_family = AF_INET;
  server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  server.sin_port = htons(flags.port);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&server), sizeof server) == 0 &&
      send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    return fd;
  }
  result->error = std::strerror(errno);
  close(fd);
  return -1;
}

void RunStreams(const Flags& flags, std::vector<StreamResult>* results) {
  std::vector<EventClock> clocks;
  std::vector<pollfd> open;  // poll skips those whose fd is negative
  for (int i = 0; i < flags.streams; ++i) {
    StreamResult* result = &(*results)[static_cast<size_t>(i)];
    clocks.emplace_back(result);
    open.push_back({.fd = Begin(flags, i, result), .events = POLLIN, .revents = 0});
  }
  std::array<char, 16384> buffer;
  while (std::any_of(open.begin(), open.end(), [](const pollfd& entry) { return entry.fd >= 0; })) {
    poll(open.data(), open.size(), /*timeout=*/-1);
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i].fd < 0 || open[i].revents == 0) continue;
      const ssize_t count = recv(open[i].fd, buffer.data(), buffer.size(), 0);
      if (count > 0 && clocks[i].Take({buffer.data(), static_cast<size_t>(count)})) continue;
      StreamResult& result = (*results)[i];
      result.end = Now();
      if (count < 0) result.error = std::strerror(errno);
      if (count == 0) result.error = "the connection was closed";
      close(open[i].fd);
      open[i].fd = -1;
    }
  }
}

int Main(int argc, char** argv) {
  CLI::App app("Streams text completions and counts");
  Flags flags;
  app.add_option("--port", flags.port, "of the scheduler, on this machine")->capture_default_str();
  app.add_option("--streams", flags.streams)->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--prompt-tokens", flags.prompt_tokens)->capture_default_str()->check(CLI::Range(1, 1000000));
  app.add_option("--max-tokens", flags.max_tokens)->capture_default_str()->check(CLI::Range(2, 1000000));
  app.add_option("--vocab", flags.vocab, "prompts are ids from 1000 up to this")->capture_default_str()->check(CLI::Range(1001, 10000000));
  app.add_option("--kv", flags.kv)->capture_default_str();
  app.add_option("--seed", flags.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  std::vector<StreamResult> results(static_cast<size_t>(flags.streams));
  const double cpu = CpuSeconds(), begin = Now();
  RunStreams(flags, &results);
  const double seconds = Now() - begin, client_cpu = CpuSeconds() - cpu;

  // The window in which every stream generates.
  double from = 0, to = 1e300;
  uint64_t events = 0;
  std::vector<double> first;
  for (const StreamResult& result : results) {
    if (!result.error.empty() || result.arrivals.empty()) {
      std::fprintf(stderr, "a stream failed: %s\n", result.error.empty() ? "no event came" : result.error.c_str());
      return 1;
    }
    first.push_back(result.arrivals.front() - begin);
    from = std::max(from, result.arrivals.front());
    to = std::min(to, result.arrivals.back());
    events += result.arrivals.size();
  }
  uint64_t inside = 0;
  for (const StreamResult& result : results) {
    for (const double at : result.arrivals) inside += at > from && at <= to;
  }
  std::sort(first.begin(), first.end());
  Json out;
  out["streams"] = flags.streams;
  out["prompt_tokens"] = flags.prompt_tokens;
  out["max_tokens"] = flags.max_tokens;
  out["kv"] = flags.kv;
  out["events"] = events;  // a token each, but for characters that several tokens make, and the last, which says why it ended
  out["seconds"] = seconds;
  out["window_seconds"] = to - from;
  out["events_per_second"] = to > from ? static_cast<double>(inside) / (to - from) : 0;
  out["tokens_per_second_whole"] = static_cast<double>(flags.streams) * flags.max_tokens / seconds;
  // From all streams' first tokens to the end: max_tokens - 1 each, whatever their bytes.
  double last_end = 0;
  for (const StreamResult& result : results) last_end = std::max(last_end, result.end);
  out["tokens_per_second"] = static_cast<double>(flags.streams) * (flags.max_tokens - 1) / (last_end - (begin + first.front()));
  out["first_token_seconds_median"] = first[first.size() / 2];
  out["client_cpu_seconds"] = client_cpu;
  out["client_cpu_share"] = client_cpu / seconds;
  std::printf("%s\n", out.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) { return stria::Main(argc, argv); }
