// quality_target: what the outer loop does on live traffic, as Markdown tables: texts that switch, static τ beside it, one conversation that
// turns, several workloads under one vector. docs/quality_target.md has a run's figures.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <numeric>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "eval/model_texts.h"
#include "eval/quality_target/live_fleet.h"
#include "eval/synthetic_texts.h"
#include "eval/texts.h"
#include "services/controller/calibration_json.h"

namespace stria {
namespace {

struct Options {
  std::string model, gsm8k = "eval/data/gsm8k_excerpt.jsonl", tau = "eval/data/tau_airline_excerpt.jsonl";
  std::string calibration = "eval/data/smollm2_calibration.json", policy = "threshold";
  std::vector<std::string> parts = {"switch", "static", "conversation", "mixed"};
  std::vector<double> taus = {0.022, 0.028, 0.035, 0.044};
  double target = 0.002, phase_tokens = 12'000, static_tokens = 4'000;
  FleetOptions fleet;
};

// Mean over the last so many scored tokens.
class Window {
 public:
  explicit Window(double most) : most_(most) {}
  void Add(const Scored& measured) {
    if (measured.tokens == 0) return;
    parts_.push_back(measured);
    sum_ += measured;
    while (sum_.tokens - parts_.front().tokens >= most_) {
      sum_.tokens -= parts_.front().tokens;
      sum_.kl -= parts_.front().kl;
      parts_.pop_front();
    }
  }
  double kl() const { return sum_.mean_kl(); }
  double tokens() const { return sum_.tokens; }

 private:
  const double most_;
  std::deque<Scored> parts_;
  Scored sum_;
};

class Runs {
 public:
  Runs(const Options& options, LoadedModel& model, Calibration calibration, std::vector<Workload> workloads)
      : options_(options), model_(model), calibration_(std::move(calibration)), workloads_(std::move(workloads)) {}

  absl::Status Switches() const;
  absl::Status Static() const;
  absl::Status Conversation() const;
  absl::Status Mixed() const;

 private:
  Settings SettingsOf(double pinned, double target) const {
    Settings settings;
    settings.policy = options_.policy == "budget" ? PolicyKind::kBudget : PolicyKind::kThreshold;
    (options_.policy == "budget" ? settings.kl_budget : settings.tau) = pinned;
    settings.target_kl = target;
    return settings;
  }
  absl::StatusOr<std::unique_ptr<LiveFleet>> Fleet(const Settings& settings, const FleetOptions& fleet,
                                                   std::vector<Workload> workloads) const {
    return LiveFleet::Create(*model_.transformer, model_.fingerprint, settings, calibration_, fleet, std::move(workloads));
  }
  double Default() const { return options_.policy == "budget" ? Settings{}.kl_budget : Settings{}.tau; }
  double Value(const LiveFleet& fleet) const { return options_.policy == "budget" ? fleet.kl_budget() : fleet.tau(); }
  void PrintCorrelation(const char* name, const LiveFleet& fleet) const;

  const Options& options_;
  LoadedModel& model_;
  const Calibration calibration_;
  const std::vector<Workload> workloads_;
};

std::vector<double> Ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t i = 0; i < order.size(); ++i) ranks[order[i]] = static_cast<double>(i);
  return ranks;
}

// Spearman's, without ties.
double RankCorrelation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = Ranks(a), y = Ranks(b);
  const auto n = static_cast<double>(a.size());
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
  return 1 - 6 * squares / (n * (n * n - 1));
}

// Live averages against what quantising the layer alone costs, as calibrated on other texts.
void Runs::PrintCorrelation(const char* name, const LiveFleet& fleet) const {
  std::printf("| %s |", name);
  for (size_t width : {0, 1}) {
    std::vector<double> live, keys, values;
    for (uint32_t l = 0; l < calibration_.layers.size(); ++l) {
      live.push_back(MeanReadings(fleet.model(), l, CacheKind::kPlain).at(width));
      keys.push_back(calibration_.layers[l].keys[width]);
      values.push_back(calibration_.layers[l].values[width]);
    }
    std::printf(" %.2f | %.2f |", RankCorrelation(live, keys), RankCorrelation(live, values));
  }
  std::printf("\n");
}

absl::Status Runs::Switches() const {
  STRIA_ASSIGN_OR_RETURN(const auto fleet, Fleet(SettingsOf(Default(), options_.target), options_.fleet, {workloads_[0]}));
  std::printf("## Traffic that switches, target %g\n\n| texts | mean of 2,000 tokens over the target from token | back under it at | over it, share of the phase | highest | KL of the second half |"
              " bits, second half | %s at the end |\n|---|---|---|---|---|---|---|---|\n", options_.target, options_.policy == "budget" ? "budget" : "τ");
  for (const size_t phase : {0, 1, 2, 0, 2, 1}) {
    fleet->Serve(0, workloads_[phase]);
    Window window(2000);
    Scored all, half;
    double from = -1, back = -1, over = 0, highest = 0;
    while (all.tokens < options_.phase_tokens) {
      const Scored step = fleet->Step()[0];
      window.Add(step);
      all += step;
      if (all.tokens > options_.phase_tokens / 2) half += step;
      if (window.tokens() < 1900) continue;
      const bool is_over = window.kl() > options_.target;
      over += is_over ? step.tokens : 0;
      highest = std::max(highest, window.kl());
      if (is_over && from < 0) from = all.tokens;
      if (!is_over && from >= 0 && back < 0) back = all.tokens;
    }
    const auto at = [](double tokens) { return tokens < 0 ? std::string("–") : absl::StrFormat("%.0f", tokens); };
    std::printf("| %s | %s | %s | %.2f | %.2g | %.2g | %.2f | %.4g |\n", workloads_[phase].name.c_str(), at(from).c_str(), at(back).c_str(),
                over / all.tokens, highest, half.mean_kl(), half.mean_bits(), Value(*fleet));
    std::fflush(stdout);
  }
  std::printf("\n");
  return absl::OkStatus();
}

absl::Status Runs::Static() const {
  std::printf("## A pinned value\n\n| %s | texts | KL | bits |\n|---|---|---|---|\n", options_.policy == "budget" ? "budget" : "τ");
  std::vector<std::pair<std::string, std::unique_ptr<LiveFleet>>> last;
  for (const double tau : options_.taus) {
    last.clear();
    for (const Workload& workload : workloads_) {
      STRIA_ASSIGN_OR_RETURN(auto fleet, Fleet(SettingsOf(tau, 0), options_.fleet, {workload}));
      Scored settled, measured;  // the first requests were sealed before the first firing
      while (settled.tokens < 2 * options_.fleet.streams * options_.fleet.answer) settled += fleet->Step()[0];
      while (measured.tokens < options_.static_tokens) measured += fleet->Step()[0];
      std::printf("| %.4g | %s | %.2g | %.2f |\n", tau, workload.name.c_str(), measured.mean_kl(), measured.mean_bits());
      std::fflush(stdout);
      last.emplace_back(workload.name, std::move(fleet));
    }
  }
  std::printf("\n## Rank correlation over layers of live key readings with the harm of quantising a layer alone\n\n"
              "| texts | INT2: keys | values | INT4: keys | values |\n|---|---|---|---|---|\n");
  for (const auto& [name, fleet] : last) PrintCorrelation(name.c_str(), *fleet);
  std::printf("\n");
  return absl::OkStatus();
}

absl::Status Runs::Conversation() const {
  constexpr size_t kTurns = 1500, kTokens = 4000, kRow = 500;
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < kTokens; ++i) {
    const Workload& workload = workloads_[i < kTurns ? 0 : 1];
    tokens.push_back(workload.tokens[i % workload.tokens.size()]);
  }
  STRIA_ASSIGN_OR_RETURN(const auto fleet, Fleet(SettingsOf(Default(), options_.target), options_.fleet, {workloads_[0]}));
  STRIA_RETURN_IF_ERROR(fleet->Converse(0, tokens, options_.fleet.prompt));
  std::printf("## One conversation that turns from %s to %s at token %zu\n\n| scored tokens | KL | bits of new pages | value |\n|---|---|---|---|\n",
              workloads_[0].name.c_str(), workloads_[1].name.c_str(), kTurns);
  Scored row, all;
  while (!fleet->idle()) {
    const Scored step = fleet->Step()[0];
    row += step;
    all += step;
    if (row.tokens < kRow && !fleet->idle()) continue;
    std::printf("| %.0f | %.2g | %.2f | %.4g |\n", all.tokens, row.mean_kl(), row.mean_bits(), Value(*fleet));
    std::fflush(stdout);
    row = {};
  }
  std::printf("\n");
  return absl::OkStatus();
}

absl::Status Runs::Mixed() const {
  FleetOptions small = options_.fleet;
  small.streams = std::max(1u, small.streams / 2);
  std::printf("## One vector for three kinds of texts at once, or one for each\n\n| texts | served | KL | bits |\n|---|---|---|---|\n");
  std::vector<std::vector<Workload>> fleets = {workloads_};
  for (const Workload& workload : workloads_) fleets.push_back({workload});
  for (const auto& workloads : fleets) {
    STRIA_ASSIGN_OR_RETURN(const auto fleet, Fleet(SettingsOf(Default(), options_.target), small, workloads));
    std::vector<Scored> second(workloads.size());
    Scored all, mean;
    while (all.tokens < options_.phase_tokens) {
      const std::vector<Scored> step = fleet->Step();
      for (size_t i = 0; i < step.size(); ++i) {
        all += step[i];
        if (all.tokens <= options_.phase_tokens / 2) continue;
        second[i] += step[i];
        mean += step[i];
      }
    }
    for (size_t i = 0; i < workloads.size(); ++i)
      std::printf("| %s | %s | %.2g | %.2f |\n", workloads[i].name.c_str(), workloads.size() > 1 ? "together" : "alone", second[i].mean_kl(), second[i].mean_bits());
    if (workloads.size() > 1) std::printf("| all | together | %.2g | %.2f |\n", mean.mean_kl(), mean.mean_bits());
    std::fflush(stdout);
  }
  std::printf("\n");
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  STRIA_ASSIGN_OR_RETURN(const Calibration calibration, ReadCalibration(options.calibration));
  STRIA_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(options.model, {.threads = options.fleet.threads,
                                                                      .max_decode_rows = static_cast<int>(2 * options.fleet.streams)}));
  STRIA_ASSIGN_OR_RETURN(const auto math, ReadGsm8k(options.gsm8k, 1, 11'000));
  STRIA_ASSIGN_OR_RETURN(const auto chat, ReadDialogues(options.tau, 1, 36'000));
  const auto retrieval = MakeRetrievalTexts(2, 60'000, options.fleet.seed);
  const auto encode = [&](const std::string& text) { return model.tokenizer->Encode(text, {}); };
  const Runs runs(options, model, calibration,
                  {{"retrieval", encode(retrieval[0] + retrieval[1])}, {"math", encode(math[0])}, {"chat", encode(chat[0])}});
  for (const std::string& part : options.parts) {
    const absl::Status status = part == "switch"         ? runs.Switches()
                                : part == "static"       ? runs.Static()
                                : part == "conversation" ? runs.Conversation()
                                                         : runs.Mixed();
    STRIA_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) {
  stria::Options options;
  CLI::App app("The quality target on live traffic: the worker's engine and the controller's code in one process.");
  app.option_defaults()->always_capture_default();
  app.add_option("--model", options.model, "GGUF file")->required();
  app.add_option("--gsm8k", options.gsm8k, "GSM8K, JSON lines");
  app.add_option("--tau-bench", options.tau, "tau-bench dialogues, JSON lines");
  app.add_option("--calibration", options.calibration, "the model's calibration");
  app.add_option("--policy", options.policy, "what the target moves")->check(CLI::IsMember({"threshold", "budget"}));
  app.add_option("--parts", options.parts, "which runs")->check(CLI::IsMember({"switch", "static", "conversation", "mixed"}));
  app.add_option("--target", options.target, "next-token KL in nats");
  app.add_option("--values", options.taus, "pinned values to compare with");
  app.add_option("--phase-tokens", options.phase_tokens, "scored tokens between two switches");
  app.add_option("--static-tokens", options.static_tokens, "scored tokens at each pinned value");
  app.add_option("--streams", options.fleet.streams, "requests at a time");
  app.add_option("--prompt", options.fleet.prompt, "tokens of a prompt");
  app.add_option("--answer", options.fleet.answer, "tokens of an answer");
  app.add_option("--canary-rate", options.fleet.canary_rate, "share of decode steps that fire");
  app.add_option("--seed", options.fleet.seed, "of requests, firings and made-up texts");
  app.add_option("--threads", options.fleet.threads, "OpenMP threads");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = stria::Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "quality_target: %s\n", std::string(status.message()).c_str());
  return 1;
}
