#include "eval/workloads.h"

#include "base/status_macros.h"
#include "eval/synthetic_texts.h"
#include "eval/texts.h"

namespace stria {

void AddWorkloadFlags(CLI::App& app, WorkloadOptions* options) {
  app.add_option("--model", options->model, "GGUF file")->required();
  app.add_option("--gsm8k", options->gsm8k, "GSM8K, JSON lines")->capture_default_str();
  app.add_option("--tau", options->tau, "tau-bench dialogues, JSON lines")->capture_default_str();
  app.add_option("--texts", options->texts, "texts of each workload")->capture_default_str();
  app.add_option("--tokens", options->tokens, "tokens of each text")->capture_default_str();
  app.add_option("--seed", options->seed, "of the retrieval texts")->capture_default_str();
  app.add_option("--threads", options->threads, "OpenMP threads")->capture_default_str();
}

absl::StatusOr<std::vector<std::string>> ReadWorkloads(const WorkloadOptions& options) {
  const size_t bytes = options.tokens * 6;  // more than any text takes per token
  STRIA_ASSIGN_OR_RETURN(std::vector<std::string> texts, ReadGsm8k(options.gsm8k, options.texts, bytes));
  STRIA_ASSIGN_OR_RETURN(const auto dialogues, ReadDialogues(options.tau, options.texts, bytes));
  const auto retrieval = MakeRetrievalTexts(options.texts, bytes, options.seed);
  texts.insert(texts.end(), dialogues.begin(), dialogues.end());
  texts.insert(texts.end(), retrieval.begin(), retrieval.end());
  return texts;
}

}  // namespace stria
