// Text to token ids and back, equal to Hugging Face `tokenizers` for the supported byte-level BPE vocabularies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/literal_matcher.h"
#include "model/tokenizer/pre_tokenizer.h"
#include "model/tokenizer/tokenizer_spec.h"

namespace stria {

struct EncodeOptions {
  // Control tokens written out in the text ("<|im_end|>") become those tokens. Off, they are text like any other:
  // never switch it on for what a user wrote.
  bool parse_special = false;
  // Begin with the BOS token, if the model's vocabulary asks for one.
  bool add_bos = false;
};

struct DecodeOptions {
  bool skip_special = true;  // leave control tokens out instead of writing their names
};

// Immutable: all methods may be called from any thread.
class Tokenizer {
 public:
  // Errors name the key and the value that is unsupported or inconsistent.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);

  // Any bytes are accepted; those that are not UTF-8 are encoded byte by byte. Bytes for which the vocabulary has no
  // token are left out, as Hugging Face does (SmolLM2 lacks six control characters and the planes above 3).
  // Time grows as n log n at worst.
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The bytes of all tokens; not necessarily UTF-8 (see ReplaceInvalidUtf8 and StreamDecoder).
  std::string Decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  // The bytes of one token: text, or the name of a control token. Empty for ids that stand for nothing, in the
  // vocabulary or outside it (a model may have more rows than tokens).
  std::string_view TokenBytes(int32_t id) const;

  bool IsControl(int32_t id) const;

  // The id of the control or user-defined token that is called `name`, or -1.
  int32_t NamedToken(std::string_view name) const;

  int vocab_size() const { return static_cast<int>(bytes_.size()); }
  int bos() const { return bos_; }  // -1: none
  int eos() const { return eos_; }  // -1: none
  bool adds_bos() const { return add_bos_; }
  const std::string& chat_template() const { return chat_template_; }

  // Tokens that end an answer: EOS, and the known end-of-turn tokens that the vocabulary has. Sorted.
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  bool IsEnd(int32_t id) const;

 private:
  Tokenizer() = default;

  absl::Status Init(TokenizerSpec spec);
  void EncodeText(std::string_view text, std::vector<int32_t>* ids) const;

  PreTokenizer pre_tokenizer_ = PreTokenizer::kGpt2;
  bool nfc_ = false;
  std::vector<std::string> bytes_;  // by id
  std::vector<bool> control_;       // by id
  Bpe bpe_;
  absl::flat_hash_map<std::string, int32_t> named_;
  LiteralMatcher user_defined_;  // matched in all text
  LiteralMatcher all_named_;     // user-defined and control
  int bos_ = -1, eos_ = -1;
  bool add_bos_ = false;
  std::string chat_template_;
  std::vector<int32_t> end_tokens_;
};

}  // namespace stria
