// engine_bench: tokens per second of the engine called in-process, what a canary firing costs, and how far
// resident memory grows with the cache. Prints JSON.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "model/gguf/gguf_checkpoint.h"
#include "nlohmann/json.hpp"
#include "worker/engine.h"

namespace stria {
namespace {

struct Options {
  std::string model;
  std::vector<std::string> decode, memory;  // batch x context x width
  std::vector<int> prefill;
  int steps = 48, threads = 2, firings = 16, churn = 0;
  uint64_t pool_mib = 1024;
  bool bf16 = false;
};

struct Case {
  int batch = 0, context = 0, bits = 0;
};

absl::StatusOr<Case> ParseCase(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, 'x');
  Case out;
  if (parts.size() == 3 && absl::SimpleAtoi(parts[0], &out.batch) &&
      absl::SimpleAtoi(parts[1], &out.context) && out.batch > 0 && out.context > 0) {
    for (Width width : kAllWidths)
      if (parts[2] == Name(width)) out.bits = Bits(width);
    if (out.bits > 0) return out;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("case \"", text, "\" is not BATCHxCONTEXTxWIDTH, as 8x2048xint4"));
}

double Seconds(MonotonicTime since) {
  return std::chrono::duration<double>(SystemClock().Now() - since).count();
}

uint64_t ResidentBytes() {
  uint64_t total = 0, resident = 0;  // pages
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(Engine& engine, const ModelConfig& model) : engine_(engine), model_(model) { SetCanary(0); }

  void SetCanary(double rate) {
    TierVector tiers = engine_.tiers();
    tiers.canary_rate = rate;
    if (!engine_.ApplyTiers(tiers).ok()) std::abort();
  }

  absl::Status Start(int tokens, int new_tokens, Width width) {
    StartSequence start;
    start.name.id = ++id_;
    for (int i = 0; i < tokens; ++i)
      start.prompt.push_back(static_cast<int32_t>(Uniform(1, start.name.id, i) * model_.vocab));
    start.max_new_tokens = new_tokens;
    start.sampling.temperature = 0;
    LayerAction action;
    action.keys = action.values = width;
    start.plan.follow_tiers = false;
    start.plan.layers.assign(model_.layers, action);
    return engine_.Start(start);
  }

  // Runs turns until all prompts are in.
  double Prefill() {
    const MonotonicTime begin = SystemClock().Now();
    do engine_.Turn();
    while (engine_.stats().prefilling > 0);
    return Seconds(begin);
  }

  std::vector<double> Steps(int count, std::vector<double>* canary = nullptr) {
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i) {
      const MonotonicTime begin = SystemClock().Now();
      const TurnResult result = engine_.Turn();
      seconds.push_back(Seconds(begin));
      if (canary != nullptr && result.canary) canary->push_back(result.canary->cost_seconds);
    }
    return seconds;
  }

  void Drop() {
    for (const SequenceInfo& info : engine_.Describe()) engine_.Cancel(info.name);
    engine_.Turn();
  }

  // `count` sequences of many lengths and widths come and, at random, go; a few stay until DropChurned. What starts in
  // between finds its pages where others have left gaps.
  absl::Status Churn(int count) {
    constexpr size_t kLive = 12;
    for (int i = 0; i < count; ++i) {
      const auto draw = [&](uint64_t what, uint64_t below) { return static_cast<uint64_t>(Uniform(2, what, i) * below); };
      STRIA_RETURN_IF_ERROR(Start(64 + static_cast<int>(draw(0, 1024)), 1000, kAllWidths[draw(1, std::size(kAllWidths))]));
      churned_.push_back({id_, 0});
      Prefill();
      Steps(static_cast<int>(draw(2, 64)));
      if (churned_.size() < kLive) continue;
      const size_t victim = draw(3, churned_.size());
      engine_.Cancel(churned_[victim]);
      churned_.erase(churned_.begin() + static_cast<ptrdiff_t>(victim));
    }
    return absl::OkStatus();
  }
  void DropChurned() {
    for (const SequenceName& name : churned_) engine_.Cancel(name);
    churned_.clear();
    engine_.Turn();
  }

 private:
  Engine& engine_;
  const ModelConfig& model_;
  uint64_t id_ = 0;
  std::vector<SequenceName> churned_;
};

absl::Status Run(Options options) {
  if (options.decode.empty() && options.prefill.empty() && options.memory.empty()) {
    options.decode = {"1x128xint4", "8x128xint4"};
    options.prefill = {512};
  }
  STRIA_ASSIGN_OR_RETURN(const auto checkpoint, GgufCheckpoint::Open(options.model));
  TransformerOptions weights{.threads = options.threads};
  if (options.bf16) weights.weights = TransformerOptions::Weights::kBf16;
  STRIA_ASSIGN_OR_RETURN(const auto transformer, Transformer::Create(*checkpoint, weights));
  STRIA_ASSIGN_OR_RETURN(
      const auto engine,
      // Prompts first, then steps: a turn takes the time that its prompts need.
      Engine::Create(*transformer,
                     {.pool_bytes = options.pool_mib << 20, .prefill_steps = 1e9, .threads = options.threads},
                     SystemClock()));
  Bench bench(*engine, transformer->config());
  nlohmann::json json = {{"model", transformer->config().name},
                         {"threads", options.threads},
                         {"weights", options.bf16 ? "bf16" : "int8"},
                         {"target", Name(BestTarget())}};
  constexpr int kWarmUp = 8;
  for (const std::string& text : options.memory) {
    STRIA_ASSIGN_OR_RETURN(const Case c, ParseCase(text));
    // A short sequence has warmed everything and stays, so its pages are on both sides of the difference.
    STRIA_RETURN_IF_ERROR(bench.Start(64, 1000, Width(c.bits)));
    bench.Prefill();
    bench.Steps(kWarmUp);
    const uint64_t resident = ResidentBytes(), used = engine->stats().used_bytes;
    for (int i = 0; i < c.batch; ++i) STRIA_RETURN_IF_ERROR(bench.Start(c.context, 1000, Width(c.bits)));
    bench.Prefill();
    bench.Steps(kWarmUp);
    json["memory"].push_back({{"batch", c.batch},
                              {"context", c.context},
                              {"width", Name(Width(c.bits))},
                              {"loaded_bytes", resident},
                              {"resident_growth_bytes", ResidentBytes() - resident},
                              {"cache_bytes", engine->stats().used_bytes - used}});
    bench.Drop();
  }
  for (const std::string& text : options.decode) {
    STRIA_ASSIGN_OR_RETURN(const Case c, ParseCase(text));
    STRIA_RETURN_IF_ERROR(bench.Churn(options.churn));
    for (int i = 0; i < c.batch; ++i)
      STRIA_RETURN_IF_ERROR(
          bench.Start(c.context, options.steps + options.firings + 2 * kWarmUp + 1000, Width(c.bits)));
    const double prefill = bench.Prefill();
    bench.DropChurned();
    bench.Steps(kWarmUp);
    const std::vector<double> steps = bench.Steps(options.steps);
    std::vector<double> canary;
    bench.SetCanary(1);
    bench.Steps(options.firings, &canary);
    bench.SetCanary(0);
    bench.Drop();
    double total = 0;
    for (double s : steps) total += s;
    const double median = Median(steps);
    nlohmann::json& out =
        json["decode"].emplace_back(nlohmann::json{{"batch", c.batch},
                                                   {"context", c.context},
                                                   {"width", Name(Width(c.bits))},
                                                   {"prefill_tokens_per_second", c.batch * c.context / prefill},
                                                   {"step_ms", median * 1e3},
                                                   {"tokens_per_second", c.batch * options.steps / total},
                                                   {"tokens_per_second_median", c.batch / median}});
    if (!canary.empty()) {
      out["firing_us"] = Median(canary) * 1e6;
      out["canary_overhead"] = Median(canary) / 64 / median;
    }
  }
  for (int tokens : options.prefill) {
    STRIA_RETURN_IF_ERROR(bench.Start(tokens, 1000, Width::kInt4));
    const double seconds = bench.Prefill();
    bench.Drop();
    json["prefill"].push_back({{"tokens", tokens}, {"tokens_per_second", tokens / seconds}});
  }
  std::printf("%s\n", json.dump(2).c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) {
  stria::Options options;
  CLI::App app("Tokens per second of the engine, called in-process.");
  app.add_option("--model", options.model, "GGUF file")->required();
  app.add_option("--decode", options.decode, "cases, BATCHxCONTEXTxWIDTH");
  app.add_option("--prefill", options.prefill, "prompt lengths");
  app.add_option("--memory", options.memory, "cases whose resident memory is measured");
  app.add_option("--steps", options.steps, "decode steps timed in each case")->capture_default_str();
  app.add_option("--firings", options.firings, "canary firings timed in each case")->capture_default_str();
  app.add_option("--churn", options.churn, "sequences that come and go before each decode case")->capture_default_str();
  app.add_option("--threads", options.threads, "OpenMP threads")->capture_default_str();
  app.add_option("--pool-mib", options.pool_mib, "cache pool")->capture_default_str();
  app.add_flag("--bf16", options.bf16, "bf16 weights in decode rows, not int8");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = stria::Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "engine_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
