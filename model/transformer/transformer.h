// A decoder-only transformer (Llama, Qwen2, Qwen3 families) as the engine drives it: row by row of residuals,
// layer by layer. It owns weights and dense scratch, knows nothing of sequences, pages or sockets; keys and
// values go through LayerCache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/layer_cache.h"
#include "model/model_config.h"

namespace stria {

// Arithmetic goes by role, not by row count (DESIGN §7), so a sequence's tokens never depend on its
// neighbours.
enum class RowRole {
  kPrompt,  // int8 weights and one-digit int8 activations in groups where the machine adds up byte products; else, and
            // with weights = kBf16, bf16 weights and f32 sums
  kDecode,  // int8 weights per output channel, two-digit int8 activations per token; or bf16 with kBf16
};

struct TransformerOptions {
  enum class Weights { kInt8, kBf16 };
  Weights weights = Weights::kInt8;
  int threads = 1;                   // OpenMP team, shared with the attention kernels
  int max_decode_rows = 64;          // largest decode batch
  int max_prompt_rows = 512;         // largest prompt chunk
};

// Where Layer and Head have spent their time so far, nanoseconds.
struct TransformerTimes {
  int64_t dense = 0;      // matrix products, quantising their inputs included
  int64_t attention = 0;  // inside LayerCache
  int64_t other = 0;      // norms, rotation, SwiGLU, sums
};

class Transformer {
 public:
  // Reads and packs all weights. `progress`, when given, is told the share done in [0, 1].
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const Checkpoint& checkpoint,
                                                             const TransformerOptions& options,
                                                             std::function<void(double)> progress = nullptr);
  virtual ~Transformer() = default;

  virtual const ModelConfig& config() const = 0;
  virtual size_t weight_bytes() const = 0;   // packed weights held
  virtual size_t scratch_bytes() const = 0;  // activations, allocated once in Create
  virtual const TransformerTimes& times() const = 0;
  // The arithmetic of a role on this machine, for the log.
  virtual std::string_view arithmetic(RowRole role) const = 0;

  // residual [tokens, hidden] = embedding rows. Token ids must be in [0, vocab).
  virtual void Embed(std::span<const int32_t> tokens, float* residual) const = 0;

  // One layer over rows = positions.size() rows, in place on residual [rows, hidden]:
  // norm → q, k, v → rotate by positions → cache.AppendAndAttend → output projection → norm → SwiGLU.
  // Nothing is allocated. Rows ≤ the role's maximum.
  virtual void Layer(int layer, RowRole role, std::span<const int32_t> positions, float* residual,
                     LayerCache& cache) = 0;

  // logits [rows, vocab] of residual rows [rows, hidden] (final norm and head), only for rows that sample.
  virtual void Head(RowRole role, int rows, const float* residual, float* logits) = 0;
};

}  // namespace stria
