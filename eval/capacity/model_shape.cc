#include "eval/capacity/model_shape.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace stria {
namespace {

using nlohmann::json;

// Reads positive integers and booleans; remembers the first complaint.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {}

  int Number(const char* name, int otherwise = 0) {
    constexpr int kMost = 10'000'000;
    const auto it = object_.find(name);
    if (it == object_.end() || it->is_null()) {
      if (otherwise == 0) Complain(absl::StrCat("config.json has no ", name));
      return otherwise == 0 ? 1 : otherwise;
    }
    if (!it->is_number_integer() || *it < 1 || *it > kMost) {
      Complain(absl::StrCat("config.json: ", name, " is ", it->dump(), ", not a number from 1 to ", kMost));
      return 1;
    }
    return it->get<int>();
  }

  bool Flag(const char* name, bool otherwise) {
    const auto it = object_.find(name);
    if (it == object_.end() || it->is_null()) return otherwise;
    if (!it->is_boolean()) Complain(absl::StrCat("config.json: ", name, " is ", it->dump(), ", not true or false"));
    return it->is_boolean() ? it->get<bool>() : otherwise;
  }

  const absl::Status& status() const { return status_; }

 private:
  void Complain(std::string what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(std::move(what));
  }

  const json& object_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<ModelConfig> ParseModelShape(const std::string& config_json) {
  const json config = json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError("config.json is no JSON object");
  ModelConfig model;
  if (const auto type = config.find("model_type"); type != config.end() && type->is_string()) model.architecture = type->get<std::string>();
  if (model.architecture != "llama" && model.architecture != "qwen2" && model.architecture != "qwen3") {
    return absl::InvalidArgumentError(absl::StrCat("config.json: model_type \"", model.architecture, "\" is not llama, qwen2 or qwen3"));
  }
  Fields fields(config);
  model.hidden = fields.Number("hidden_size");
  model.layers = fields.Number("num_hidden_layers");
  model.heads = fields.Number("num_attention_heads");
  model.kv_heads = fields.Number("num_key_value_heads", model.heads);
  model.head_dim = fields.Number("head_dim", std::max(1, model.hidden / model.heads));
  model.rope_dims = model.head_dim;
  model.ffn = fields.Number("intermediate_size");
  model.vocab = fields.Number("vocab_size");
  model.context_length = fields.Number("max_position_embeddings");
  model.tied_embeddings = fields.Flag("tie_word_embeddings", false);
  model.qkv_bias = model.architecture == "qwen2" || fields.Flag("attention_bias", false);
  model.qk_norm = model.architecture == "qwen3";
  if (!fields.status().ok()) return fields.status();
  if (model.heads % model.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("config.json: ", model.heads, " query heads over ", model.kv_heads, " KV heads"));
  }
  return model;
}

uint64_t ParameterCount(const ModelConfig& model) {
  const uint64_t hidden = model.hidden, q = model.q_width(), kv = model.kv_width();
  uint64_t layer = hidden * (q + 2 * kv) + q * hidden + 3 * hidden * model.ffn + 2 * hidden;
  if (model.qkv_bias) layer += q + 2 * kv;
  if (model.qk_norm) layer += 2 * model.head_dim;
  const uint64_t embedding = uint64_t(model.vocab) * hidden;
  return embedding * (model.tied_embeddings ? 1 : 2) + model.layers * layer + hidden;
}

}  // namespace stria
