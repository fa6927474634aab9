// `./stria plan`: what a model's weights and caches take of N GPUs.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "eval/capacity/capacity.h"
#include "eval/capacity/model_shape.h"
#include "services/common/config.h"

namespace stria {
namespace {

struct Flags {
  std::string model;
  CapacityRequest request;
  bool json = false;
  int anchors = 0, rank = 128, rotary = 64, latent_bits = 4;
};

absl::Status Run(const Flags& flags) {
  std::ifstream file(flags.model);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good()) return absl::NotFoundError(absl::StrCat("cannot read ", flags.model));
  STRIA_ASSIGN_OR_RETURN(const ModelConfig model, ParseModelShape(text));
  if (flags.anchors > model.layers) return absl::InvalidArgumentError(absl::StrCat("--anchors ", flags.anchors, ": the model has ", model.layers, " layers"));
  CapacityRequest request = flags.request;
  if (request.context == 0) request.context = static_cast<uint32_t>(model.context_length);
  STRIA_ASSIGN_OR_RETURN(const Capacity capacity, PlanCapacity(model, request));
  std::fputs((flags.json ? CapacityJson(request, capacity) : CapacityText(model, request, capacity)).c_str(), stdout);
  if (flags.anchors > 0 && !flags.json) {
    const auto ratio = [&](double more) { return LatentRatio(model, flags.anchors, flags.rank, flags.rotary, flags.latent_bits + more); };
    std::printf("\n%d anchors of rank %d + %d rotary at %d bits, the others inherit: %.1fx, %.1fx with scales (by formula: no such page is built yet)\n",
                flags.anchors, flags.rank, flags.rotary, flags.latent_bits, ratio(0), ratio(0.5));
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app("Weights, ring, cache per width and contexts per GPU, for any model of the Llama and Qwen families", "plan");
  Flags flags;
  CapacityRequest& request = flags.request;
  app.option_defaults()->always_capture_default();
  app.add_option("--model", flags.model, "the model's config.json")->required();
  app.add_option("--gpus", request.gpus, "that share the model, by heads")->check(CLI::Range(1, 1024));
  app.add_option("--context", request.context, "tokens of one sequence; 0: the model's longest")->check(CLI::Range(0u, 1u << 24));
  app.add_option("--sequences", request.sequences, "for the bytes shown")->check(CLI::Range(1u, 1u << 20));
  AddBytesOption(app, "--gpu-bytes", &request.gpu_bytes, "memory of one GPU");
  app.add_option("--weight-bits", request.weight_bits, "of a weight, scales included")->check(CLI::Range(1.0, 32.0));
  app.add_option("--reserve", request.reserve, "share of the memory for everything else")->check(CLI::Range(0.0, 0.95));
  app.add_option("--sink-pages", request.sink_pages, "first pages that stay FP16")->check(CLI::Range(0u, 1024u));
  app.add_option("--anchors", flags.anchors, "also the ratio of a Kaizen plan with so many latent layers")->check(CLI::Range(0, 10000));
  app.add_option("--rank", flags.rank, "of its latents")->check(CLI::Range(1, 65536));
  app.add_option("--rotary", flags.rotary, "rotary values beside the latent")->check(CLI::Range(0, 65536));
  app.add_option("--latent-bits", flags.latent_bits, "2, 4, 8 or 16")->check(CLI::IsMember({2, 4, 8, 16}));
  app.add_flag("--json", flags.json, "for programs");
  if (const std::optional<int> code = ParseFlags(app, argc, argv)) return *code;
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "plan: %s\n", std::string(status.message()).c_str());
  return 2;
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) { return stria::Main(argc, argv); }
