// Cuts text into the words within which byte pairs merge. Each kind is one published regular expression, written as a
// scanner: linear in the text, without a matching engine's limits, and with the character classes of unicode.h.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"

namespace stria {

enum class PreTokenizer {
  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kGpt2,
  // Every digit alone, then kGpt2 on what lies between digits.
  kSmolLm,
  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  kLlama3,
  // kLlama3 with \p{N} in place of \p{N}{1,3}.
  kQwen2,
};

// From GGUF's `tokenizer.ggml.pre`; an unknown name is an error that names it.
absl::StatusOr<PreTokenizer> ParsePreTokenizer(std::string_view name);

// The end of the word that begins at `text[begin]`; requires begin < text.size() and begin at the end of another word
// or 0. Bytes that are not UTF-8 count as characters of no class.
size_t WordEnd(PreTokenizer kind, std::string_view text, size_t begin);

}  // namespace stria
