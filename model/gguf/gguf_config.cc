#include "model/gguf/gguf_config.h"

#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/gguf/dequantize.h"

namespace stria {
namespace {

// Bounds that no real model comes near: they keep products of two of them within int.
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxWidth = 1 << 20;  // hidden, ffn
constexpr int64_t kMaxHeads = 1 << 12;
constexpr int64_t kMaxHeadDim = 1 << 12;
constexpr int64_t kMaxContext = 1 << 30;

// Keys (after the architecture's name) that must be absent or have this value.
struct Neutral {
  const char* key;
  double value;
  const char* meaning;
};
constexpr Neutral kNeutral[] = {
    {"expert_count", 0, "mixture of experts"},
    {"attention.sliding_window", 0, "sliding-window attention"},
    {"attention.scale", 0, "attention scale"},
    {"attention.clamp_kqv", 0, "clamped queries, keys and values"},
    {"attention.max_alibi_bias", 0, "ALiBi"},
    {"attention.causal", 1, "bidirectional attention"},
    {"logit_scale", 0, "scaled logits"},
    {"residual_scale", 0, "scaled residuals"},
    {"embedding_scale", 0, "scaled embeddings"},
    {"final_logit_softcapping", 0, "capped logits"},
    {"attn_logit_softcapping", 0, "capped attention"},
    {"pooling_type", 0, "pooled embeddings"},
    {"rope.scaling.alpha", 0, "rotary scaling by alpha"},
    {"rope.scaling.yarn_ext_factor", 1, "YaRN extrapolation factor"},
    {"rope.scaling.yarn_attn_factor", 1, "YaRN attention factor"},
    {"rope.scaling.yarn_log_multiplier", 0, "YaRN log multiplier"},
};

absl::string_view View(std::string_view text) { return absl::string_view(text.data(), text.size()); }

class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, std::string_view architecture) : file_(file), prefix_(architecture) {
    prefix_ += '.';
  }

  absl::StatusOr<ModelConfig> Read();

 private:
  absl::Status CheckNeutral() const;
  absl::StatusOr<int> Integer(std::string_view key, int64_t max, std::optional<int64_t> fallback = {}) const;
  absl::StatusOr<float> Positive(std::string_view key, std::optional<double> fallback = {}) const;
  absl::StatusOr<RopeScaling> ReadRope(const ModelConfig& config) const;
  std::string Key(std::string_view key) const { return absl::StrCat(prefix_, View(key)); }

  const GgufFile& file_;
  std::string prefix_;
};

// A count in [1, max].
absl::StatusOr<int> ConfigReader::Integer(std::string_view key, int64_t max,
                                          std::optional<int64_t> fallback) const {
  const std::string full = Key(key);
  STRIA_ASSIGN_OR_RETURN(std::optional<int64_t> value, file_.Integer(full));
  if (!value) value = fallback;
  if (!value) return absl::InvalidArgumentError(absl::StrCat("metadata '", full, "' is missing"));
  if (*value < 1 || *value > max) {
    return absl::InvalidArgumentError(absl::StrCat("metadata '", full, "' is ", *value, ", not 1 to ", max));
  }
  return static_cast<int>(*value);
}

absl::StatusOr<float> ConfigReader::Positive(std::string_view key, std::optional<double> fallback) const {
  const std::string full = Key(key);
  STRIA_ASSIGN_OR_RETURN(std::optional<double> value, file_.Number(full));
  if (!value) value = fallback;
  if (!value) return absl::InvalidArgumentError(absl::StrCat("metadata '", full, "' is missing"));
  const float narrowed = static_cast<float>(*value);
  if (!(narrowed > 0) || std::isinf(narrowed)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata '", full, "' is ", *value, ", not positive and finite"));
  }
  return narrowed;
}

absl::Status ConfigReader::CheckNeutral() const {
  for (const Neutral& neutral : kNeutral) {
    const std::string full = Key(neutral.key);
    const GgufValue* value = file_.Find(full);
    if (value == nullptr) continue;
    if (const bool* flag = std::get_if<bool>(value); flag != nullptr && *flag == (neutral.value != 0))
      continue;
    if (!std::holds_alternative<bool>(*value)) {
      STRIA_ASSIGN_OR_RETURN(const std::optional<double> number, file_.Number(full));
      if (*number == neutral.value) continue;
      return absl::UnimplementedError(
          absl::StrCat(neutral.meaning, " is not supported ('", full, "' is ", *number, ")"));
    }
    return absl::UnimplementedError(absl::StrCat(neutral.meaning, " is not supported ('", full, "')"));
  }
  STRIA_ASSIGN_OR_RETURN(const std::optional<int64_t> parts, file_.Integer("split.count"));
  if (parts && *parts > 1) {
    return absl::UnimplementedError(absl::StrCat("a model split over ", *parts, " files is not supported"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RopeScaling> ConfigReader::ReadRope(const ModelConfig& config) const {
  using Kind = RopeScaling::Kind;
  RopeScaling rope;
  STRIA_ASSIGN_OR_RETURN(const std::optional<std::string_view> type, file_.String(Key("rope.scaling.type")));
  STRIA_ASSIGN_OR_RETURN(std::optional<double> factor, file_.Number(Key("rope.scaling.factor")));
  if (!factor) {
    STRIA_ASSIGN_OR_RETURN(factor, file_.Number(Key("rope.scale_linear")));  // before GGUF named the types
  }
  const bool has_factor = factor && *factor != 0;
  if (type && *type != "none" && *type != "linear" && *type != "yarn") {
    return absl::UnimplementedError(
        absl::StrCat("rotary scaling ", QuoteForError(*type),
                     " is not supported (supported: none, linear, yarn, llama3)"));
  }
  if (type == "yarn") {
    rope.kind = Kind::kYarn;
  } else if (type != "none" && has_factor && *factor != 1) {
    rope.kind = Kind::kLinear;
  }
  if (rope.kind != Kind::kNone) {
    rope.factor = has_factor ? static_cast<float>(*factor) : 1;
    if (!(rope.factor > 0) || std::isinf(rope.factor)) {
      return absl::InvalidArgumentError(absl::StrCat("metadata '", Key("rope.scaling.factor"), "' is ",
                                                     *factor, ", not positive and finite"));
    }
  }
  STRIA_ASSIGN_OR_RETURN(rope.original_context,
                         Integer("rope.scaling.original_context_length", kMaxContext, config.context_length));
  STRIA_ASSIGN_OR_RETURN(const float attention_factor, Positive("rope.scaling.attn_factor", 1));
  if (rope.kind == Kind::kYarn) {
    rope.attention_factor = attention_factor * (rope.factor > 1 ? 1 + 0.1f * std::log(rope.factor) : 1);
    STRIA_ASSIGN_OR_RETURN(rope.beta_fast, Positive("rope.scaling.yarn_beta_fast", 32));
    STRIA_ASSIGN_OR_RETURN(rope.beta_slow, Positive("rope.scaling.yarn_beta_slow", 1));
  } else if (attention_factor != 1) {
    return absl::UnimplementedError(absl::StrCat("an attention factor without YaRN is not supported ('",
                                                 Key("rope.scaling.attn_factor"), "' is ", attention_factor,
                                                 ")"));
  }
  const GgufTensor* divisors = file_.FindTensor("rope_freqs.weight");
  if (divisors == nullptr || config.architecture != "llama") return rope;

  if (rope.kind != Kind::kNone) {
    return absl::UnimplementedError(
        "rope_freqs.weight together with another rotary scaling is not supported");
  }
  if (divisors->cols() != config.rope_dims / 2 || divisors->rows() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("tensor 'rope_freqs.weight' is [", divisors->rows(), ", ",
                                                   divisors->cols(), "], not [1, ", config.rope_dims / 2,
                                                   "]"));
  }
  rope.kind = Kind::kLlama3;
  rope.frequency_divisors.resize(divisors->cols());
  Dequantize(divisors->type, divisors->data.data(), divisors->cols(), rope.frequency_divisors.data());
  for (const float divisor : rope.frequency_divisors) {
    if (!(divisor > 0) || std::isinf(divisor)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor 'rope_freqs.weight' holds ", divisor, ", not positive and finite"));
    }
  }
  return rope;
}

absl::StatusOr<ModelConfig> ConfigReader::Read() {
  ModelConfig config;
  config.architecture = prefix_.substr(0, prefix_.size() - 1);
  config.qkv_bias = config.architecture == "qwen2";
  config.qk_norm = config.architecture == "qwen3";
  STRIA_ASSIGN_OR_RETURN(const std::optional<std::string_view> name, file_.String("general.name"));
  if (name) config.name = *name;
  STRIA_RETURN_IF_ERROR(CheckNeutral());

  STRIA_ASSIGN_OR_RETURN(config.layers, Integer("block_count", kMaxLayers));
  STRIA_ASSIGN_OR_RETURN(config.hidden, Integer("embedding_length", kMaxWidth));
  STRIA_ASSIGN_OR_RETURN(config.ffn, Integer("feed_forward_length", kMaxWidth));
  STRIA_ASSIGN_OR_RETURN(config.context_length, Integer("context_length", kMaxContext));
  STRIA_ASSIGN_OR_RETURN(config.heads, Integer("attention.head_count", kMaxHeads));
  STRIA_ASSIGN_OR_RETURN(config.kv_heads, Integer("attention.head_count_kv", kMaxHeads, config.heads));
  if (config.heads % config.kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.heads, " query heads are not a multiple of ", config.kv_heads, " KV heads"));
  }
  std::optional<int64_t> derived_head_dim;
  if (config.hidden % config.heads == 0) derived_head_dim = config.hidden / config.heads;
  STRIA_ASSIGN_OR_RETURN(config.head_dim, Integer("attention.key_length", kMaxHeadDim, derived_head_dim));
  STRIA_ASSIGN_OR_RETURN(const int value_dim,
                         Integer("attention.value_length", kMaxHeadDim, derived_head_dim));
  STRIA_ASSIGN_OR_RETURN(config.rope_dims, Integer("rope.dimension_count", kMaxHeadDim, config.head_dim));
  if (value_dim != config.head_dim || config.rope_dims != config.head_dim || config.head_dim % 2 != 0) {
    return absl::UnimplementedError(
        absl::StrCat("heads with ", config.head_dim, " key, ", value_dim, " value and ", config.rope_dims,
                     " rotary channels are not supported: one even number for all three"));
  }
  STRIA_ASSIGN_OR_RETURN(config.norm_epsilon, Positive("attention.layer_norm_rms_epsilon"));
  STRIA_ASSIGN_OR_RETURN(config.rope_base, Positive("rope.freq_base", 10000));
  STRIA_ASSIGN_OR_RETURN(config.rope, ReadRope(config));
  return config;
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file) {
  STRIA_ASSIGN_OR_RETURN(const std::optional<std::string_view> architecture,
                         file.String("general.architecture"));
  if (!architecture) return absl::InvalidArgumentError("metadata 'general.architecture' is missing");
  if (*architecture != "llama" && *architecture != "qwen2" && *architecture != "qwen3") {
    return absl::UnimplementedError(absl::StrCat("architecture ", QuoteForError(*architecture),
                                                 " is not supported (supported: llama, qwen2, qwen3)"));
  }
  return ConfigReader(file, *architecture).Read();
}

}  // namespace stria
