#pragma once

#include <optional>
#include <string>
#include <vector>

namespace stria {

// GGUF's numbering of `tokenizer.ggml.token_type`.
enum TokenType : int {
  kTokenNormal = 1,
  kTokenUnknown = 2,
  kTokenControl = 3,      // Special: never produced from user text, never shown.
  kTokenUserDefined = 4,  // Added to the vocabulary as a whole: matched in plain text too, and shown.
  kTokenUnused = 5,
  kTokenByte = 6,
};

// A vocabulary and its rules as plain data, as `tokenizer.ggml.*` and `tokenizer.chat_template` state them. Absent
// keys leave the defaults; Tokenizer::Create judges the rest.
struct TokenizerSpec {
  std::string model;                // `model`: only "gpt2" (byte-level BPE) is supported.
  std::string pre;                  // `pre`: names the pre-tokenizer, for instance "smollm".
  std::vector<std::string> tokens;  // `tokens`: by id, in the printable byte alphabet of GPT-2.
  std::vector<int> token_types;     // `token_type`: one TokenType for each token; empty means all normal.
  std::vector<std::string> merges;  // `merges`: "left right", best first.
  int bos = -1;                     // `bos_token_id`; -1 when absent, like the others.
  int eos = -1;                     // `eos_token_id`
  int eot = -1;                     // `eot_token_id`: ends a turn, where that is another token than eos.
  int unk = -1;                     // `unknown_token_id`
  int pad = -1;                     // `padding_token_id`
  std::optional<bool> add_bos;      // `add_bos_token`; when absent the pre-tokenizer's custom decides (Llama 3: yes)
  bool add_eos = false;             // `add_eos_token`
  bool add_space_prefix = false;    // `add_space_prefix`
  std::string chat_template;        // `tokenizer.chat_template`: Jinja source.
};

}  // namespace stria
