// The weights of a GGUF file behind the Checkpoint interface.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/gguf/gguf_file.h"

namespace stria {

class GgufCheckpoint final : public Checkpoint {
 public:
  // Opens the file and checks that every weight of the architecture is there in the right shape, and that no
  // tensor is left over (one that we would ignore would change the model's text silently). Errors as
  // GgufFile::Open and ReadModelConfig, with the path and the tensor's name.
  static absl::StatusOr<std::unique_ptr<GgufCheckpoint>> Open(const std::string& path);

  // The same over a file that is already parsed.
  static absl::StatusOr<std::unique_ptr<GgufCheckpoint>> Create(GgufFile file);

  const ModelConfig& config() const override { return config_; }
  void Read(WeightRole role, int layer, int row_begin, int row_end, float* out) const override;

  // Over the header (metadata and tensor directory), the file's size and the first bytes of every tensor, so
  // that a model fine-tuned under unchanged metadata has another one.
  const std::string& fingerprint() const override { return fingerprint_; }

  // For what else the file holds: the tokenizer and its chat template.
  const GgufFile& file() const { return file_; }

 private:
  struct Weight {
    const GgufTensor* tensor = nullptr;
    bool paired = false;  // rows of a head pair neighbours, to be put in Hugging Face's order
  };

  explicit GgufCheckpoint(GgufFile file) : file_(std::move(file)) {}
  absl::Status MapWeights();
  absl::StatusOr<Weight> Expect(const std::string& name, int rows, int cols) const;
  void ComputeFingerprint();

  GgufFile file_;
  ModelConfig config_;
  std::map<std::pair<WeightRole, int>, Weight> weights_;
  std::string fingerprint_;
};

}  // namespace stria
