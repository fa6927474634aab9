// What a request says about its cache, what that costs, and the plan that it becomes (DESIGN §4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cache_plan.h"

namespace stria {

// Bits of one token in one layer's cache, scales, first page and tail aside:
//   c(inherit) = 0, c(latent) = (d + rotary) · b, c(plain) = kv_width · (b_K + b_V)
// with kv_width = n_kv · d_h and `rotary` = d_R, what a pack's latents carry beside their rank.
double LayerCost(const LayerAction& action, uint32_t kv_width, uint32_t rotary);

// C0 / Σc with C0 = layers · 2 · kv_width · 16: how many times smaller than FP16, before eviction.
double RepresentationRatio(const std::vector<LayerAction>& layers, uint32_t kv_width, uint32_t rotary = 0);

// The choice as it was written, and for `kaizen` as it was composed (scheduler/kv_composer.h). Nothing in it falls back silently.
struct KvChoice {
  enum class Mode { kAuto, kFixed, kPlan, kKaizen };
  Mode mode = Mode::kAuto;
  Width width = Width::kFp16;        // kFixed
  std::vector<LayerAction> layers;   // kPlan: plain and inherit; kKaizen: once it is composed
  std::optional<double> keep;        // up to 1: that share of the prompt; above: tokens
  std::optional<double> ratio;       // in all; representation is what mode and layers give, eviction does the rest
  std::optional<bool> widen;         // kKaizen: the guard; absent: on where no ratio is asked for

  // C0 / Σc; nullopt for `auto`, whose widths nobody knows before, and for `kaizen` before it is composed.
  std::optional<double> Representation() const;

  // What is wrong whatever the model and the prompt; `field` is the one to blame.
  struct Fault {
    const char* field;
    std::string message;
  };
  // `has_pack`: the model has one.
  std::optional<Fault> Check(bool has_pack = false) const;

  // For a model of so many layers. InvalidArgument: another number of layers, or a ratio and a keep that disagree for
  // this prompt. Only for a choice that Check found right, and `kaizen` composed.
  absl::StatusOr<CachePlan> Plan(size_t model_layers, uint32_t prompt_tokens) const;

  // The share of the prompt that was asked to stay, in (0, 1]; what stays is rounded up to whole pages beside the tail.
  double KeptShare(uint32_t prompt_tokens) const;

  // "auto", "int4", "plan: 1×fp16 28×int8/int4 1×inherit", each followed by ", keep 0.25" where tokens are evicted.
  std::string Describe() const;
};

}  // namespace stria
