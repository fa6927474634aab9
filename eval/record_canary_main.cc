// record_canary: canary readings of three workloads on a real model, FP16 cache, for the simulator (eval/canary_recording.h).
#include <cstdio>
#include <fstream>
#include <map>

#include "CLI/CLI.hpp"
#include "base/status_macros.h"
#include "eval/canary_recording.h"
#include "eval/model_texts.h"
#include "eval/workloads.h"
#include "worker/teacher_forcing.h"

namespace stria {
namespace {

struct Options : WorkloadOptions {
  Options() { texts = 8, tokens = 1280, seed = 1; }
  std::string out;
  size_t from = 512;
  uint32_t every = 2;
};

absl::Status Run(const Options& options) {
  STRIA_ASSIGN_OR_RETURN(const std::vector<std::string> texts, ReadWorkloads(options));
  const int rows = static_cast<int>(texts.size());
  STRIA_ASSIGN_OR_RETURN(const LoadedModel model,
                         LoadModel(options.model, {.threads = options.threads, .max_decode_rows = rows}));
  STRIA_ASSIGN_OR_RETURN(const auto tokens, CutTexts(*model.tokenizer, texts, options.tokens));

  constexpr const char* kWorkloads[] = {"gsm8k", "tau_airline", "retrieval"};
  std::map<size_t, std::string> lines;  // by text, whose firings come in order
  std::map<size_t, uint32_t> fired;
  TeacherForcingOptions forcing{.threads = options.threads, .max_rows = rows};
  forcing.canary_from = static_cast<uint32_t>(options.from);
  forcing.canary = [&](size_t text, uint32_t, const CanaryFrame& frame) {
    if (fired[text]++ % options.every != 0) return;
    RecordedFiring firing{.workload = kWorkloads[text / options.texts],
                          .text = static_cast<uint32_t>(text % options.texts),
                          .tokens = static_cast<uint32_t>(frame.tokens),
                          .layers = {}};
    for (const LayerReading& reading : frame.readings) firing.layers.push_back(reading.kl);
    lines[text] += FormatFiring(firing);
  };
  const int layers = model.transformer->config().layers;
  const CacheVariant exact[] = {{"FP16", UniformPlan(layers, Width::kFp16, Width::kFp16), 0}};
  STRIA_RETURN_IF_ERROR(TeacherForce(*model.transformer, forcing, tokens, exact, [](size_t, uint32_t, std::span<const float>) {}));
  std::ofstream file(options.out);
  for (const auto& [text, text_lines] : lines) file << text_lines;
  return file.good() ? absl::OkStatus() : absl::UnavailableError("cannot write " + options.out);
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) {
  stria::Options options;
  CLI::App app("Canary readings of three workloads on a real model, for the simulator.");
  stria::AddWorkloadFlags(app, &options);
  app.add_option("--out", options.out, "file to write")->required();
  app.add_option("--from", options.from, "first token whose step may fire: what comes before is the prompt")->capture_default_str();
  app.add_option("--every", options.every, "keep one firing of so many")->capture_default_str()->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = stria::Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "record_canary: %s\n", std::string(status.message()).c_str());
  return 1;
}
