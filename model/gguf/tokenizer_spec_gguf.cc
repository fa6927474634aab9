#include "model/gguf/tokenizer_spec_gguf.h"

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stria {
namespace {

absl::Status CopyStrings(const GgufFile& file, std::string_view key, std::vector<std::string>* out) {
  STRIA_ASSIGN_OR_RETURN(const auto strings, file.Strings(key));
  if (strings) out->assign(strings->begin(), strings->end());
  return absl::OkStatus();
}

absl::Status CopyString(const GgufFile& file, std::string_view key, std::string* out) {
  STRIA_ASSIGN_OR_RETURN(const auto text, file.String(key));
  if (text) *out = *text;
  return absl::OkStatus();
}

absl::Status CopyId(const GgufFile& file, std::string_view key, size_t vocab, int* out) {
  STRIA_ASSIGN_OR_RETURN(const auto id, file.Integer(key));
  if (!id) return absl::OkStatus();
  // Some writers say "none" as 2^32 - 1 or as -1.
  if (*id == -1 || *id == 0xffffffff) return absl::OkStatus();
  if (*id < 0 || static_cast<uint64_t>(*id) >= vocab) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata ", QuoteForError(key), " is ", *id, ", outside the vocabulary of ", vocab));
  }
  *out = static_cast<int>(*id);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> MakeTokenizerSpec(const GgufFile& file) {
  TokenizerSpec spec;
  STRIA_RETURN_IF_ERROR(CopyString(file, "tokenizer.ggml.model", &spec.model));
  STRIA_RETURN_IF_ERROR(CopyString(file, "tokenizer.ggml.pre", &spec.pre));
  STRIA_RETURN_IF_ERROR(CopyString(file, "tokenizer.chat_template", &spec.chat_template));
  STRIA_RETURN_IF_ERROR(CopyStrings(file, "tokenizer.ggml.tokens", &spec.tokens));
  STRIA_RETURN_IF_ERROR(CopyStrings(file, "tokenizer.ggml.merges", &spec.merges));
  if (spec.tokens.empty())
    return absl::InvalidArgumentError("metadata 'tokenizer.ggml.tokens' is missing or empty");

  STRIA_ASSIGN_OR_RETURN(const auto types, file.Integers("tokenizer.ggml.token_type"));
  if (types) {
    if (types->size() != spec.tokens.size()) {
      return absl::InvalidArgumentError(absl::StrCat("metadata 'tokenizer.ggml.token_type' has ",
                                                     types->size(), " entries for ", spec.tokens.size(),
                                                     " tokens"));
    }
    for (const int64_t type : *types) {
      if (type < kTokenNormal || type > kTokenByte) {
        return absl::InvalidArgumentError(absl::StrCat("metadata 'tokenizer.ggml.token_type' holds ", type));
      }
      spec.token_types.push_back(static_cast<int>(type));
    }
  }
  const size_t vocab = spec.tokens.size();
  STRIA_RETURN_IF_ERROR(CopyId(file, "tokenizer.ggml.bos_token_id", vocab, &spec.bos));
  STRIA_RETURN_IF_ERROR(CopyId(file, "tokenizer.ggml.eos_token_id", vocab, &spec.eos));
  STRIA_RETURN_IF_ERROR(CopyId(file, "tokenizer.ggml.eot_token_id", vocab, &spec.eot));
  STRIA_RETURN_IF_ERROR(CopyId(file, "tokenizer.ggml.unknown_token_id", vocab, &spec.unk));
  STRIA_RETURN_IF_ERROR(CopyId(file, "tokenizer.ggml.padding_token_id", vocab, &spec.pad));
  STRIA_ASSIGN_OR_RETURN(spec.add_bos, file.Bool("tokenizer.ggml.add_bos_token"));
  STRIA_ASSIGN_OR_RETURN(const auto add_eos, file.Bool("tokenizer.ggml.add_eos_token"));
  STRIA_ASSIGN_OR_RETURN(const auto add_space, file.Bool("tokenizer.ggml.add_space_prefix"));
  spec.add_eos = add_eos.value_or(false);
  spec.add_space_prefix = add_space.value_or(false);
  return spec;
}

}  // namespace stria
