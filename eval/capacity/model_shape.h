// The shape of a model out of a Hugging Face config.json, without its weights.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model/model_config.h"

namespace stria {

// Llama, Qwen2 and Qwen3, dense. InvalidArgument names the field that is missing, of another type or out of range, or the family that is
// not known. What only decides about arithmetic (rotary base, epsilon) is left at its default.
absl::StatusOr<ModelConfig> ParseModelShape(const std::string& config_json);

// Numbers in all weights of such a model.
uint64_t ParameterCount(const ModelConfig& model);

}  // namespace stria
