// Where weights come from: one interface over GGUF (model/gguf) and safetensors (model/safetensors).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/model_config.h"

namespace stria {

// Every matrix is [rows = outputs, cols = inputs], row-major.
enum class WeightRole {
  kEmbedding,   // [vocab, hidden]
  kAttnNorm,    // [1, hidden]
  kQuery, kKey, kValue,              // [q_width | kv_width, hidden]
  kQueryBias, kKeyBias, kValueBias,  // [1, q_width | kv_width], Qwen2
  kQueryNorm, kKeyNorm,              // [1, head_dim], Qwen3
  kAttnOutput,  // [hidden, q_width]
  kFfnNorm,     // [1, hidden]
  kGate, kUp,   // [ffn, hidden]
  kDown,        // [hidden, ffn]
  kOutputNorm,  // [1, hidden]
  kOutput,      // [vocab, hidden]; the embedding when tied
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  virtual const ModelConfig& config() const = 0;

  // Dequantises rows [row_begin, row_end) of a weight to float32 into out [(row_end - row_begin), cols].
  // `layer` is ignored for the weights that exist once. Rows of queries and keys are in Hugging Face's order: channel i of a
  // head rotates with channel i + rope_dims / 2 (GGUF files of the llama family pair neighbours; the reader undoes that).
  // Thread-safe. Missing tensors and wrong shapes were refused when the file was opened.
  virtual void Read(WeightRole role, int layer, int row_begin, int row_end, float* out) const = 0;

  // SHA-256 over the file's header and tensor bytes' layout, hex: names the model in telemetry and hashes.
  virtual const std::string& fingerprint() const = 0;
};

}  // namespace stria
