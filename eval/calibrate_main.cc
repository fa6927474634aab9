// calibrate: what each layer's keys and values cost a model in next-token KL, one after the other, and what its canary reads
// meanwhile. Writes the file that the controller takes with --calibration (services/controller/calibration_json.h).
//
// Only INT2 is measured: KL goes with the step squared, so KL(b) = KL(2)·(3 / (2^b − 1))². All layers run side by side in one batch.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "eval/cache_quality.h"
#include "eval/model_texts.h"
#include "eval/workloads.h"
#include "services/controller/calibration_json.h"

namespace stria {
namespace {

struct Options : WorkloadOptions {
  std::string out;
};

// Layers 0 … with keys alone at INT2, then with values alone.
std::vector<CacheVariant> OneAtATime(int layers) {
  std::vector<CacheVariant> variants;
  for (int layer = 0; layer < layers; ++layer) {
    for (const bool keys : {true, false}) {
      CacheVariant variant{absl::StrCat(keys ? "keys of layer " : "values of layer ", layer),
                           UniformPlan(layers, Width::kFp16, Width::kFp16), 1};
      (keys ? variant.plan.layers[layer].keys : variant.plan.layers[layer].values) = Width::kInt2;
      variants.push_back(std::move(variant));
    }
  }
  return variants;
}

WidthCosts FromInt2(double kl) {
  const auto at = [&](int bits) { return kl * std::pow(3.0 / ((1 << bits) - 1), 2); };
  return {at(2), at(4), at(8)};
}

absl::Status Run(const Options& options) {
  constexpr int kMaxRows = 64;
  STRIA_ASSIGN_OR_RETURN(const LoadedModel model,
                         LoadModel(options.model, {.threads = options.threads, .max_decode_rows = kMaxRows}));
  const int layers = model.transformer->config().layers;
  STRIA_ASSIGN_OR_RETURN(const std::vector<std::string> texts, ReadWorkloads(options));
  STRIA_ASSIGN_OR_RETURN(const auto tokens, CutTexts(*model.tokenizer, texts, options.tokens));

  Calibration calibration{.model = model.fingerprint, .layers = std::vector<LayerCalibration>(layers)};
  uint64_t firings = 0;
  TeacherForcingOptions forcing{.threads = options.threads, .max_rows = kMaxRows};
  forcing.canary_from = static_cast<uint32_t>(options.tokens / 2);
  forcing.canary = [&](size_t, uint32_t, const CanaryFrame& frame) {
    ++firings;
    for (const LayerReading& reading : frame.readings) {
      for (size_t i = 0; i < reading.kl.size(); ++i) calibration.layers[reading.layer].canary[i] += reading.kl[i];
    }
  };
  const std::vector<CacheVariant> variants = OneAtATime(layers);
  // Before the first quantised page the KL is 0 and says nothing.
  uint32_t first_seen = 0;
  while (QuantisedTokens(variants[0], first_seen) == 0) ++first_seen;
  const double seen = 1 - first_seen / static_cast<double>(options.tokens);
  for (size_t first = 0; first < variants.size(); first += kMaxRows - 1) {
    const size_t count = std::min<size_t>(kMaxRows - 1, variants.size() - first);
    STRIA_ASSIGN_OR_RETURN(const auto costs, MeasureCacheQuality(*model.transformer, forcing, tokens,
                                                                 std::span(variants).subspan(first, count)));
    for (size_t i = 0; i < count; ++i) {
      LayerCalibration& layer = calibration.layers[(first + i) / 2];
      ((first + i) % 2 == 0 ? layer.keys : layer.values) = FromInt2(costs[i].kl / seen);
    }
  }
  for (LayerCalibration& layer : calibration.layers) {
    for (double& reading : layer.canary) reading /= static_cast<double>(firings);
  }
  nlohmann::json json = ToJson(calibration);
  json["model"] = model.transformer->config().name;
  json["made_by"] = absl::StrCat("./stria calibrate, ", texts.size(), " texts of ", options.tokens, " tokens, canary over the second half");
  std::ofstream file(options.out);
  file << json.dump(1) << "\n";
  return file.good() ? absl::OkStatus() : absl::UnavailableError("cannot write " + options.out);
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) {
  stria::Options options;
  CLI::App app("What each layer's keys and values cost a model in next-token KL, for the controller's policies.");
  stria::AddWorkloadFlags(app, &options);
  app.get_option("--tokens")->check(CLI::Range(256, 1 << 20));
  app.add_option("--out", options.out, "file to write")->required();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = stria::Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "calibrate: %s\n", std::string(status.message()).c_str());
  return 1;
}
