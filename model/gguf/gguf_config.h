// The shape of the model in a GGUF file, read from its metadata.
#pragma once

#include "absl/status/statusor.h"
#include "model/gguf/gguf_file.h"
#include "model/model_config.h"

namespace stria {

// Architectures llama, qwen2 and qwen3. Unimplemented, by name, for any other, and for every metadata key
// that changes the arithmetic in a way that we do not follow (experts, sliding window, scales, other rotary
// scalings, split files); InvalidArgument for missing keys and impossible values. `vocab` and
// `tied_embeddings` come from the tensors.
//
// Rotary scaling follows llama.cpp: a factor without a type is linear; a tensor rope_freqs.weight means
// llama3, its values being the divisors; YaRN's attention_factor is rope.scaling.attn_factor (default 1)
// times 1 + 0.1·ln(factor), that is, all that multiplies cos and sin. YaRN's betas are taken from the file as
// Hugging Face does (llama.cpp ignores them).
absl::StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file);

}  // namespace stria
