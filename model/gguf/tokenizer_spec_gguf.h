// The tokenizer of a GGUF file as plain data.
#pragma once

#include "absl/status/statusor.h"
#include "model/gguf/gguf_file.h"
#include "model/tokenizer/tokenizer_spec.h"

namespace stria {

// Copies `tokenizer.ggml.*` and `tokenizer.chat_template`. InvalidArgument, with the key, where a value is of
// the wrong type, the vocabulary is missing, there are not as many types as tokens, or a special token's id
// is outside the vocabulary.
absl::StatusOr<TokenizerSpec> MakeTokenizerSpec(const GgufFile& file);

}  // namespace stria
