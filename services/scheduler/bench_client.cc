// A light client for measuring: N streams of text completions at once, tokens per second while all of them run, and the CPU time
// that the client itself took, since it shares the machine with what it measures. Prints one JSON object.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "services/common/http_client.h"

namespace stria {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
  std::string url = "http://127.0.0.1:8000", kv = "auto";
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

void Run(const Flags& flags, int stream, StreamResult* result) {
  auto client = HttpClient::Create(flags.url, 120);
  if (!client.ok()) {
    result->error = client.status().ToString();
    return;
  }
  bool done = false;
  std::string rest;  // of an event that a read cut in two
  const auto reply = (*client)->Stream("POST", "/v1/completions", Body(flags, stream), {}, [&](std::string_view piece) {
    const double now = Now();
    rest.append(piece);
    for (size_t end; (end = rest.find("\n\n")) != std::string::npos; rest.erase(0, end + 2)) {
      if (rest.starts_with("data: {")) result->arrivals.push_back(now);
      done |= rest.starts_with("data: [DONE]");
    }
    return true;
  });
  result->end = Now();
  if (!reply.ok()) {
    result->error = reply.status().ToString();
  } else if (reply->status != 200 || !done) {
    result->error = "HTTP status " + std::to_string(reply->status);
  }
}

int Main(int argc, char** argv) {
  CLI::App app("Streams text completions and counts");
  Flags flags;
  app.add_option("--url", flags.url)->capture_default_str();
  app.add_option("--streams", flags.streams)->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--prompt-tokens", flags.prompt_tokens)->capture_default_str()->check(CLI::Range(1, 1000000));
  app.add_option("--max-tokens", flags.max_tokens)->capture_default_str()->check(CLI::Range(2, 1000000));
  app.add_option("--vocab", flags.vocab, "prompts are ids from 1000 up to this")->capture_default_str()->check(CLI::Range(1001, 10000000));
  app.add_option("--kv", flags.kv)->capture_default_str();
  app.add_option("--seed", flags.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  std::vector<StreamResult> results(static_cast<size_t>(flags.streams));
  const double cpu = CpuSeconds(), begin = Now();
  std::vector<std::thread> threads;
  for (int i = 0; i < flags.streams; ++i) threads.emplace_back(Run, std::cref(flags), i, &results[static_cast<size_t>(i)]);
  for (std::thread& thread : threads) thread.join();
  const double seconds = Now() - begin, client_cpu = CpuSeconds() - cpu;

  // The window in which every stream generates.
  double from = 0, to = 1e300;
  uint64_t events = 0;
  std::vector<double> first;
  for (const StreamResult& result : results) {
    if (!result.error.empty() || result.arrivals.empty()) {
      std::fprintf(stderr, "a stream failed: %s\n", result.error.c_str());
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
