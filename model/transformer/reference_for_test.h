// A small model with random weights and its forward pass in plain double loops, whole contexts at once. Tests
// only.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint.h"

namespace stria {

class RandomCheckpoint final : public Checkpoint {
 public:
  RandomCheckpoint(const ModelConfig& config, uint64_t seed);

  const ModelConfig& config() const override { return config_; }
  void Read(WeightRole role, int layer, int row_begin, int row_end, float* out) const override;
  const std::string& fingerprint() const override { return fingerprint_; }

  struct Matrix {
    int rows = 0, cols = 0;
    std::vector<float> values;
  };
  Matrix& At(WeightRole role, int layer) { return weights_.at({role, layer}); }
  const Matrix& At(WeightRole role, int layer) const { return weights_.at({role, layer}); }

 private:
  const ModelConfig config_;
  const std::string fingerprint_ = "random";
  std::map<std::pair<WeightRole, int>, Matrix> weights_;
};

// What a transformer's arithmetic makes of the weights of its matrices; the embedding table is bf16 always.
enum class Rounding { kBf16, kInt8 };
RandomCheckpoint Rounded(const RandomCheckpoint& checkpoint, Rounding rounding);

// Logits [tokens, vocab].
std::vector<double> ReferenceLogits(const RandomCheckpoint& checkpoint, std::span<const int32_t> tokens);

}  // namespace stria
