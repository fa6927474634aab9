#include "model/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/tokenizer/unicode.h"

namespace stria {
namespace {

// Ends of answers in the supported families, whatever a file calls them.
constexpr std::string_view kEndNames[] = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>",
                                          "<|end_of_text|>"};

absl::Status CheckSpec(const TokenizerSpec& spec) {
  if (spec.model != "gpt2") {
    return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.model: \"", spec.model,
                                                 "\" is not supported (only gpt2, byte-level BPE)"));
  }
  if (spec.tokens.empty()) return absl::InvalidArgumentError("tokenizer.ggml.tokens: no tokens");
  if (!spec.token_types.empty() && spec.token_types.size() != spec.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.token_type: ", spec.token_types.size(),
                                                   " types for ", spec.tokens.size(), " tokens"));
  }
  if (spec.add_eos) return absl::UnimplementedError("tokenizer.ggml.add_eos_token: true is not supported");
  if (spec.add_space_prefix) {
    return absl::UnimplementedError("tokenizer.ggml.add_space_prefix: true is not supported");
  }
  const std::pair<const char*, int> ids[] = {
      {"bos_token_id", spec.bos}, {"eos_token_id", spec.eos}, {"eot_token_id", spec.eot}};
  for (const auto& [key, id] : ids) {
    if (id < -1 || id >= static_cast<int64_t>(spec.tokens.size())) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.", key, ": ", id, " is outside the vocabulary of ",
                                                     spec.tokens.size(), " tokens"));
    }
  }
  return absl::OkStatus();
}

// Converters fill rows of the embedding that have no token with "[PAD<id>]", as if users could write that.
bool IsFiller(const std::string& token, size_t id) { return token == absl::StrCat("[PAD", id, "]"); }

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer);
  STRIA_RETURN_IF_ERROR(tokenizer->Init(std::move(spec)));
  return tokenizer;
}

absl::Status Tokenizer::Init(TokenizerSpec spec) {
  STRIA_RETURN_IF_ERROR(CheckSpec(spec));
  STRIA_ASSIGN_OR_RETURN(pre_tokenizer_, ParsePreTokenizer(spec.pre));
  const bool llama3 = pre_tokenizer_ == PreTokenizer::kLlama3;
  nfc_ = pre_tokenizer_ == PreTokenizer::kQwen2;

  const size_t n = spec.tokens.size();
  bytes_.resize(n);
  control_.resize(n);
  std::vector<std::string> mergeable(n);
  for (size_t i = 0; i < n; ++i) {
    const int32_t id = static_cast<int32_t>(i);
    std::string& token = spec.tokens[i];
    const int type = spec.token_types.empty() ? kTokenNormal : spec.token_types[i];
    const auto error = [&](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens: token ", i, " ", what));
    };
    if (type == kTokenUnused || IsFiller(token, i)) continue;
    if (token.empty()) return error("is empty");
    if (type == kTokenNormal) {
      absl::StatusOr<std::string> bytes = BytesFromPrintable(token);
      // Hugging Face shows what is outside the byte alphabet as it is; merges can't make it.
      if (bytes.ok()) mergeable[i] = *bytes;
      bytes_[i] = bytes.ok() ? *std::move(bytes) : std::move(token);
    } else if (type == kTokenControl || type == kTokenUnknown || type == kTokenUserDefined) {
      control_[i] = type != kTokenUserDefined;
      if (!named_.emplace(token, id).second) return error("has the name of another");
      all_named_.Add(token, id);
      if (!control_[i]) user_defined_.Add(token, id);
      bytes_[i] = std::move(token);
    } else {
      return error(absl::StrCat("is of type ", type, ", which byte-level BPE does not have"));
    }
  }
  STRIA_ASSIGN_OR_RETURN(bpe_, Bpe::Create(mergeable, spec.merges, /*whole_words=*/llama3));

  bos_ = spec.bos;
  eos_ = spec.eos;
  add_bos_ = spec.add_bos.value_or(llama3) && bos_ >= 0;
  chat_template_ = std::move(spec.chat_template);
  for (const int id : {spec.eos, spec.eot}) {
    if (id >= 0) end_tokens_.push_back(id);
  }
  for (const std::string_view name : kEndNames) {
    if (const int32_t id = NamedToken(name); IsControl(id)) end_tokens_.push_back(id);
  }
  std::sort(end_tokens_.begin(), end_tokens_.end());
  end_tokens_.erase(std::unique(end_tokens_.begin(), end_tokens_.end()), end_tokens_.end());
  return absl::OkStatus();
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 1);
  if (options.add_bos && add_bos_) ids.push_back(bos_);
  const LiteralMatcher& named = options.parse_special ? all_named_ : user_defined_;
  for (size_t at = 0; at < text.size();) {
    const LiteralMatcher::Match match = named.Find(text, at);
    EncodeText(text.substr(at, match.begin - at), &ids);
    if (match.id < 0) break;
    ids.push_back(match.id);
    at = match.end;
  }
  return ids;
}

void Tokenizer::EncodeText(std::string_view text, std::vector<int32_t>* ids) const {
  std::string normalized;
  if (nfc_) text = normalized = Nfc(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = WordEnd(pre_tokenizer_, text, at);
    bpe_.Encode(text.substr(at, end - at), ids);
    at = end;
  }
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::string text;
  for (const int32_t id : ids) {
    if (!options.skip_special || !IsControl(id)) text += TokenBytes(id);
  }
  return text;
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  return id >= 0 && id < vocab_size() ? std::string_view(bytes_[id]) : std::string_view();
}

bool Tokenizer::IsControl(int32_t id) const { return id >= 0 && id < vocab_size() && control_[id]; }

bool Tokenizer::IsEnd(int32_t id) const { return std::binary_search(end_tokens_.begin(), end_tokens_.end(), id); }

int32_t Tokenizer::NamedToken(std::string_view name) const {
  const auto found = named_.find(absl::string_view(name.data(), name.size()));
  return found == named_.end() ? -1 : found->second;
}

}  // namespace stria
