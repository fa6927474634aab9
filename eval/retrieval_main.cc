// retrieval: prints what eviction and width cost on prompts that ask for something said early, as a Markdown table.
#include <cstdio>

#include "CLI/CLI.hpp"
#include "base/status_macros.h"
#include "eval/model_texts.h"
#include "eval/retrieval.h"

namespace stria {
namespace {

struct Options {
  std::string model;
  size_t prompts = 12, tokens = 1024;
  uint64_t seed = 1;
  int threads = 2;
};

absl::Status Run(const Options& options) {
  STRIA_ASSIGN_OR_RETURN(const LoadedModel model,
                         LoadModel(options.model, {.threads = options.threads, .max_decode_rows = 16, .max_prompt_rows = 256}));
  const std::vector<RetrievalPrompt> sets[] = {NeedlePrompts(*model.tokenizer, options.prompts, options.tokens, options.seed),
                                               KeyValuePrompts(*model.tokenizer, options.prompts, options.tokens, options.seed)};
  std::printf("| cache | keep | bytes | needle, NLL | exact | key-value, NLL | exact |\n|---|---|---|---|---|---|---|\n");
  for (const Width width : {Width::kFp16, Width::kInt4}) {
    for (const int part : {1, 2, 4, 8}) {
      RetrievalScore scores[2];
      for (int i = 0; i < 2; ++i) {
        STRIA_ASSIGN_OR_RETURN(scores[i], ScoreRetrieval(*model.transformer, options.threads, sets[i], width, 1.0 / part));
      }
      std::printf("| %s | %s%d | 1/%.2g | %.3f | %.2f | %.3f | %.2f |\n", Name(width), part == 1 ? "" : "1/", part, scores[0].ratio,
                  scores[0].nll, scores[0].exact, scores[1].nll, scores[1].exact);
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) {
  stria::Options options;
  CLI::App app("What eviction and width cost on retrieval prompts, through the engine.");
  app.add_option("--model", options.model, "GGUF file")->required();
  app.add_option("--prompts", options.prompts, "of each kind")->capture_default_str()->check(CLI::Range(1, 10000));
  app.add_option("--tokens", options.tokens, "of each prompt, about")->capture_default_str()->check(CLI::Range(64, 1000000));
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--threads", options.threads, "OpenMP threads")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = stria::Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "retrieval: %s\n", std::string(status.message()).c_str());
  return 1;
}
