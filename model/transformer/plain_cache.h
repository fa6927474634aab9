// The simplest LayerCache: grows without bound, rounds keys and values to FP16 (or not), attends in plain
// loops. Tests only.
#pragma once

#include <vector>

#include "model/layer_cache.h"
#include "model/model_config.h"

namespace stria {

class PlainCache final : public LayerCache {
 public:
  enum class Storage { kFp16, kFloat32 };

  PlainCache(const ModelConfig& config, int sequences, Storage storage);

  // Row i of the calls that follow belongs to sequence sequence_of_row[i]. Rows of one sequence are in order
  // of position.
  void SetRows(std::vector<int> sequence_of_row) { sequence_of_row_ = std::move(sequence_of_row); }

  void AppendAndAttend(int layer, const AttentionRows& rows) override;

 private:
  struct Head {
    std::vector<float> keys, values;  // [tokens, head_dim]
  };
  Head& At(int layer, int sequence, int kv_head) {
    return heads_[(static_cast<size_t>(layer) * sequences_ + sequence) * config_.kv_heads + kv_head];
  }
  void Append(const float* from, std::vector<float>& to) const;

  const ModelConfig config_;
  const int sequences_;
  const Storage storage_;
  std::vector<int> sequence_of_row_;
  std::vector<Head> heads_;
};

}  // namespace stria
