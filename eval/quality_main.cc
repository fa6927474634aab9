// quality: prints what each cache width costs in next-token KL, as a Markdown table, and writes JSON.
#include <cstdio>
#include <fstream>

#include "CLI/CLI.hpp"
#include "base/status_macros.h"
#include "eval/cache_quality.h"
#include "eval/model_texts.h"
#include "eval/prefix_quality.h"
#include "eval/texts.h"
#include "nlohmann/json.hpp"

namespace stria {
namespace {

struct Options {
  std::string model, gsm8k, tau, json;
  size_t texts = 4, tokens = 2048;
  int threads = 2;
  bool bf16 = false, sharing = false;
};

std::vector<CacheVariant> Variants(int layers) {
  const auto make = [&](const char* name, Width keys, Width values, uint32_t sinks) {
    return CacheVariant{name, UniformPlan(layers, keys, values), sinks};
  };
  return {make("INT8", Width::kInt8, Width::kInt8, 1),
          make("INT4", Width::kInt4, Width::kInt4, 1),
          make("K8 V4", Width::kInt8, Width::kInt4, 1),
          make("K4 V8", Width::kInt4, Width::kInt8, 1),
          make("K4 V2", Width::kInt4, Width::kInt2, 1),
          make("K2 V4", Width::kInt2, Width::kInt4, 1),
          make("INT2", Width::kInt2, Width::kInt2, 1),
          make("INT8, all pages", Width::kInt8, Width::kInt8, 0),
          make("INT4, all pages", Width::kInt4, Width::kInt4, 0),
          make("K4 V2, all pages", Width::kInt4, Width::kInt2, 0),
          make("INT2, all pages", Width::kInt2, Width::kInt2, 0)};
}

using Texts = std::vector<std::vector<int32_t>>;

// What a shared prefix costs beside what its width costs.
absl::Status PrintSharing(const Options& options, Transformer& transformer, const Texts& gsm8k, const Texts& tau) {
  std::printf("\n| pages | KL of the width | KL of sharing a prompt's pages | an answer's pages |\n|---|---|---|---|\n");
  const std::vector<Width> widths = {Width::kFp16, Width::kInt8, Width::kInt4, Width::kInt2};
  std::vector<PrefixQuality> results[2][2];  // text, decoded
  for (const bool decoded : {false, true}) {
    const PrefixQualityOptions prefix{.threads = options.threads, .decoded = decoded};
    STRIA_ASSIGN_OR_RETURN(results[0][decoded], MeasurePrefixQuality(transformer, prefix, gsm8k, widths));
    STRIA_ASSIGN_OR_RETURN(results[1][decoded], MeasurePrefixQuality(transformer, prefix, tau, widths));
  }
  for (size_t i = 0; i < widths.size(); ++i) {
    const auto& [g, t] = results;
    std::printf("| %s | %.2g / %.2g | %.2g / %.2g | %.2g / %.2g |\n", Name(widths[i]), g[0][i].width_kl,
                t[0][i].width_kl, g[0][i].sharing_kl, t[0][i].sharing_kl, g[1][i].sharing_kl, t[1][i].sharing_kl);
  }
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  TransformerOptions transformer{.threads = options.threads, .max_decode_rows = 64};
  if (options.bf16) transformer.weights = TransformerOptions::Weights::kBf16;
  STRIA_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options.model, transformer));
  const size_t bytes = options.tokens * 6;  // more than any text takes per token
  STRIA_ASSIGN_OR_RETURN(const auto gsm8k_texts, ReadGsm8k(options.gsm8k, options.texts, bytes));
  STRIA_ASSIGN_OR_RETURN(const auto tau_texts, ReadDialogues(options.tau, options.texts, bytes));
  STRIA_ASSIGN_OR_RETURN(const auto gsm8k, CutTexts(*model.tokenizer, gsm8k_texts, options.tokens));
  STRIA_ASSIGN_OR_RETURN(const auto tau, CutTexts(*model.tokenizer, tau_texts, options.tokens));
  if (options.sharing) return PrintSharing(options, *model.transformer, gsm8k, tau);
  const std::vector<CacheVariant> variants = Variants(model.transformer->config().layers);
  const TeacherForcingOptions forcing{.threads = options.threads, .max_rows = transformer.max_decode_rows};
  STRIA_ASSIGN_OR_RETURN(const auto on_gsm8k,
                         MeasureCacheQuality(*model.transformer, forcing, gsm8k, variants));
  STRIA_ASSIGN_OR_RETURN(const auto on_tau, MeasureCacheQuality(*model.transformer, forcing, tau, variants));

  std::printf(
      "| cache | bits | KL, GSM8K | KL, τ-bench | of deep positions | p99 | same best token | perplexity "
      "|\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  nlohmann::json json = {{"model", model.transformer->config().name},
                         {"fingerprint", model.fingerprint},
                         {"weights", options.bf16 ? "bf16" : "int8"},
                         {"target", Name(forcing.target)},
                         {"texts", options.texts},
                         {"tokens", options.tokens}};
  for (size_t i = 0; i < variants.size(); ++i) {
    const CacheQuality &a = on_gsm8k[i], &b = on_tau[i];
    std::printf("| %s | %.3g | %.2g | %.2g | %.2g / %.2g | %.2g / %.2g | %.4f / %.4f | %.3f / %.3f |\n",
                a.name.c_str(), a.bits, a.kl, b.kl, a.kl_deep, b.kl_deep, a.kl_p99, b.kl_p99, a.agreement,
                b.agreement, a.perplexity, b.perplexity);
    for (const auto& [text, q] : {std::pair("gsm8k", a), std::pair("tau_airline", b)})
      json["caches"][a.name][text] = {{"bits", q.bits},           {"kl", q.kl},
                                      {"kl_deep", q.kl_deep},     {"kl_p99", q.kl_p99},
                                      {"agreement", q.agreement}, {"perplexity", q.perplexity}};
  }
  if (options.json.empty()) return absl::OkStatus();
  std::ofstream file(options.json);
  file << json.dump(2) << "\n";
  return file.good() ? absl::OkStatus() : absl::UnavailableError("cannot write " + options.json);
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) {
  stria::Options options;
  CLI::App app("What each cache width costs in next-token KL against an FP16 cache, through decode steps.");
  app.add_option("--model", options.model, "GGUF file")->required();
  app.add_option("--gsm8k", options.gsm8k, "GSM8K, JSON lines")->required();
  app.add_option("--tau", options.tau, "tau-bench dialogues, JSON lines")->required();
  app.add_option("--texts", options.texts, "texts of each kind")->capture_default_str();
  app.add_option("--tokens", options.tokens, "tokens of each text")->capture_default_str();
  app.add_option("--threads", options.threads, "OpenMP threads")->capture_default_str();
  app.add_flag("--sharing", options.sharing, "measure what sharing prefixes costs instead");
  app.add_flag("--bf16", options.bf16, "bf16 weights in decode rows, not int8");
  app.add_option("--json", options.json, "write all figures to this file");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = stria::Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "quality: %s\n", std::string(status.message()).c_str());
  return 1;
}
