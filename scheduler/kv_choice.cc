#include "scheduler/kv_choice.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"

namespace stria {
namespace {

constexpr double kAgreement = 0.01;  // how closely a ratio and a keep must agree

bool Agree(double a, double b) { return std::abs(a - b) <= kAgreement * b; }

std::string Disagreement(double ratio, double representation, double share) {
  return absl::StrFormat("is %g, but the widths make %.4g and 'kv.keep' another %.4g, %.4g in all: give one of the two", ratio,
                         representation, 1 / share, representation / share);
}

std::string NameOf(const LayerAction& action) {
  if (action.kind == LayerAction::Kind::kInherit) return "inherit";
  if (action.keys == action.values) return Name(action.keys);
  return absl::StrCat(Name(action.keys), "/", Name(action.values));
}

}  // namespace

double LayerCost(const LayerAction& action, uint32_t kv_width, uint32_t rotary) {
  switch (action.kind) {
    case LayerAction::Kind::kInherit: return 0;
    case LayerAction::Kind::kLatent: return double(action.rank + rotary) * Bits(action.latent);
    case LayerAction::Kind::kPlain: return double(kv_width) * (Bits(action.keys) + Bits(action.values));
  }
  return 0;
}

double RepresentationRatio(const std::vector<LayerAction>& layers, uint32_t kv_width, uint32_t rotary) {
  double cost = 0;
  for (const LayerAction& action : layers) cost += LayerCost(action, kv_width, rotary);
  return static_cast<double>(layers.size()) * 2 * kv_width * 16 / cost;
}

std::optional<double> KvChoice::Representation() const {
  switch (mode) {
    case Mode::kAuto: return std::nullopt;
    case Mode::kFixed: return 16.0 / Bits(width);
    case Mode::kKaizen:
      if (layers.empty()) return std::nullopt;
      [[fallthrough]];
    case Mode::kPlan: return RepresentationRatio(layers, /*kv_width=*/1);  // cancels out without latents
  }
  return std::nullopt;
}

std::optional<KvChoice::Fault> KvChoice::Check(bool has_pack) const {
  if (mode == Mode::kPlan) {
    if (layers.empty()) return Fault{"layers", "is missing: mode 'plan' needs one action per layer"};
    if (layers[0].kind == LayerAction::Kind::kInherit) {
      return Fault{"layers", "lets the first layer inherit, and no layer is before it"};
    }
    for (const LayerAction& action : layers) {
      if (action.kind == LayerAction::Kind::kLatent) return Fault{"layers", has_pack ? "asks for latents, and this model's pack has none" : "asks for latents, which need a pack, and this model has none"};
    }
  } else if (!layers.empty()) {
    return Fault{"layers", "needs mode 'plan'"};
  }
  if (keep && *keep > 1 && (*keep != std::floor(*keep) || *keep < kEvictionUnit)) {
    return Fault{"keep", absl::StrFormat("must be a share up to 1 or a whole number of tokens from %d, because the prompt's last %d always stay, not %g",
                                         kEvictionUnit, kEvictionUnit, *keep)};
  }
  if (!ratio || mode == Mode::kKaizen) return std::nullopt;
  const std::optional<double> representation = Representation();
  if (!representation) {
    return Fault{"ratio", "needs mode fp16, int8, int4, int2 or plan: the widths of 'auto' are the controller's"};
  }
  if (*ratio < *representation * (1 - kAgreement)) {
    return Fault{"ratio", absl::StrFormat("is %g, but '%s' alone makes %.4g", *ratio, mode == Mode::kPlan ? "plan" : Name(width), *representation)};
  }
  if (keep && *keep <= 1 && !Agree(*ratio, *representation / *keep)) return Fault{"ratio", Disagreement(*ratio, *representation, *keep)};
  return std::nullopt;
}

double KvChoice::KeptShare(uint32_t prompt_tokens) const {
  STRIA_CHECK(prompt_tokens > 0);
  if (keep) return *keep <= 1 ? *keep : std::min(1.0, *keep / prompt_tokens);
  return ratio ? std::min(1.0, *Representation() / *ratio) : 1.0;
}

absl::StatusOr<CachePlan> KvChoice::Plan(size_t model_layers, uint32_t prompt_tokens) const {
  CachePlan plan;
  if (mode == Mode::kFixed) {
    LayerAction action;
    action.keys = action.values = width;
    plan.follow_tiers = false;
    plan.layers.assign(model_layers, action);
  } else if (mode == Mode::kPlan || mode == Mode::kKaizen) {
    STRIA_CHECK(!layers.empty());
    if (layers.size() != model_layers) {
      return absl::InvalidArgumentError(absl::StrCat("'kv.layers' lists ", layers.size(), " actions, the model has ", model_layers, " layers"));
    }
    plan.follow_tiers = false;
    plan.layers = layers;
    plan.widen = mode == Mode::kKaizen && widen.value_or(false);
  }
  const double share = KeptShare(prompt_tokens);
  if (ratio && keep && *keep > 1 && !Agree(*ratio, *Representation() / share)) {
    return absl::InvalidArgumentError(absl::StrCat("'kv.ratio' ", Disagreement(*ratio, *Representation(), share)));
  }
  if (share < 1) plan.keep_tokens = std::max(1u, static_cast<uint32_t>(std::ceil(share * prompt_tokens - 1e-6)));
  return plan;
}

std::string KvChoice::Describe() const {
  std::string text = mode == Mode::kAuto ? "auto" : mode == Mode::kFixed ? Name(width) : mode == Mode::kPlan ? "plan:" : "kaizen:";
  for (size_t i = 0, end; i < layers.size(); i = end) {
    for (end = i + 1; end < layers.size() && layers[end] == layers[i];) ++end;
    absl::StrAppend(&text, " ", end - i, "×", NameOf(layers[i]));
  }
  const double kept = keep ? *keep : ratio ? std::min(1.0, *Representation() / *ratio) : 1;
  if (kept != 1) absl::StrAppendFormat(&text, ", keep %.4g", kept);
  return text;
}

}  // namespace stria
