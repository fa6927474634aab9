#include "eval/model_texts.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/gguf/gguf_checkpoint.h"
#include "model/gguf/tokenizer_spec_gguf.h"

namespace stria {

absl::StatusOr<LoadedModel> LoadModel(const std::string& path, const TransformerOptions& options) {
  LoadedModel model;
  STRIA_ASSIGN_OR_RETURN(const std::unique_ptr<GgufCheckpoint> checkpoint, GgufCheckpoint::Open(path));
  STRIA_ASSIGN_OR_RETURN(TokenizerSpec spec, MakeTokenizerSpec(checkpoint->file()));
  STRIA_ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::Create(std::move(spec)));
  STRIA_ASSIGN_OR_RETURN(model.transformer, Transformer::Create(*checkpoint, options));
  model.fingerprint = checkpoint->fingerprint();
  return model;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> CutTexts(const Tokenizer& tokenizer,
                                                           const std::vector<std::string>& texts,
                                                           size_t tokens) {
  std::vector<std::vector<int32_t>> cut;
  for (const std::string& text : texts) {
    std::vector<int32_t> ids = tokenizer.Encode(text, {.add_bos = true});
    if (ids.size() < tokens)
      return absl::InvalidArgumentError(absl::StrCat("a text of ", ids.size(), " tokens, not ", tokens));
    ids.resize(tokens);
    cut.push_back(std::move(ids));
  }
  return cut;
}

}  // namespace stria
