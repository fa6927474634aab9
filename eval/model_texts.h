// A model and token texts, as the quality tool and its test load them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/tokenizer.h"
#include "model/transformer/transformer.h"

namespace stria {

struct LoadedModel {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Transformer> transformer;
  std::string fingerprint;
};
absl::StatusOr<LoadedModel> LoadModel(const std::string& path, const TransformerOptions& options);

// The first `tokens` tokens of each text. InvalidArgument if one has fewer.
absl::StatusOr<std::vector<std::vector<int32_t>>> CutTexts(const Tokenizer& tokenizer,
                                                           const std::vector<std::string>& texts,
                                                           size_t tokens);

}  // namespace stria
