// plan_quality: what the plans of the controller's policies cost in next-token KL beside uniform widths, on mixed text, as a
// Markdown table.
#include <cstdio>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "eval/cache_quality.h"
#include "eval/model_texts.h"
#include "eval/plans.h"
#include "eval/texts.h"
#include "services/controller/calibration_json.h"

namespace stria {
namespace {

struct Options {
  std::string model, gsm8k = "eval/data/gsm8k_excerpt.jsonl", tau = "eval/data/tau_airline_excerpt.jsonl", calibration;
  size_t texts = 2, tokens = 1024;
  int threads = 2;
};

absl::Status Run(const Options& options) {
  STRIA_ASSIGN_OR_RETURN(const Calibration calibration, ReadCalibration(options.calibration));
  constexpr int kMaxRows = 64;
  STRIA_ASSIGN_OR_RETURN(const LoadedModel model,
                         LoadModel(options.model, {.threads = options.threads, .max_decode_rows = kMaxRows}));
  if (calibration.model != model.fingerprint)
    return absl::InvalidArgumentError(absl::StrFormat("%s is of model %s, not %s", options.calibration, calibration.model, model.fingerprint));
  const int layers = model.transformer->config().layers;
  const size_t bytes = options.tokens * 6;  // more than any text takes per token
  STRIA_ASSIGN_OR_RETURN(std::vector<std::string> texts, ReadGsm8k(options.gsm8k, options.texts, bytes));
  STRIA_ASSIGN_OR_RETURN(const auto dialogues, ReadDialogues(options.tau, options.texts, bytes));
  texts.insert(texts.end(), dialogues.begin(), dialogues.end());
  STRIA_ASSIGN_OR_RETURN(const auto tokens, CutTexts(*model.tokenizer, texts, options.tokens));

  std::vector<CacheVariant> variants = {{"uniform INT4", UniformPlan(layers, Width::kInt4, Width::kInt4), 1}};
  for (const double bits : {3.0, 3.5, 4.0, 4.5, 5.0}) {
    variants.push_back({absl::StrFormat("budget, %.1f bits", bits), BudgetPlan(calibration, bits), 1});
    variants.push_back({absl::StrFormat("threshold, %.1f bits", bits), ThresholdPlan(calibration, bits), 1});
  }
  const TeacherForcingOptions forcing{.threads = options.threads, .max_rows = kMaxRows};
  STRIA_ASSIGN_OR_RETURN(const auto results, MeasureCacheQuality(*model.transformer, forcing, tokens, variants));

  std::printf("| plan | bits | KL predicted | KL measured | to uniform INT4 | budget − threshold, 95 %% | same best token |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < variants.size(); ++i) {
    std::string difference = "";
    if (i > 0 && i % 2 == 1) {
      const PairedDifference paired = Compare(results[i].page_kl, results[i + 1].page_kl);
      difference = absl::StrFormat("%+.2g ± %.1g", paired.mean, paired.half_width);
    }
    std::printf("| %s | %.2f | %.2g | %.2g | %.2f | %s | %.4f |\n", variants[i].name.c_str(), results[i].bits,
                PredictedKl(calibration, variants[i].plan), results[i].kl, results[i].kl / results[0].kl, difference.c_str(),
                results[i].agreement);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) {
  stria::Options options;
  CLI::App app("What the plans of the controller's policies cost in next-token KL, through decode steps.");
  app.add_option("--model", options.model, "GGUF file")->required();
  app.add_option("--gsm8k", options.gsm8k, "GSM8K, JSON lines")->capture_default_str();
  app.add_option("--tau", options.tau, "tau-bench dialogues, JSON lines")->capture_default_str();
  app.add_option("--calibration", options.calibration, "the model's calibration")->required();
  app.add_option("--texts", options.texts, "texts of each kind")->capture_default_str();
  app.add_option("--tokens", options.tokens, "tokens of each text")->capture_default_str();
  app.add_option("--threads", options.threads, "OpenMP threads")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = stria::Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "plan_quality: %s\n", std::string(status.message()).c_str());
  return 1;
}
