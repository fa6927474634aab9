// A transformer's weights as its dense backends pack them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/float16.h"
#include "model/checkpoint.h"
#include "model/dense/dense_layer.h"

namespace stria {

// The four matrix products of a layer.
struct LayerMatrices {
  std::unique_ptr<DenseLayer> qkv;          // [q_width + 2 · kv_width, hidden]: queries, keys, values
  std::unique_ptr<DenseLayer> attn_output;  // [hidden, q_width]
  std::unique_ptr<DenseLayer> gate_up;      // [2 · ffn, hidden]: gates, then ups
  std::unique_ptr<DenseLayer> down;         // [hidden, ffn]
};

struct LayerVectors {
  std::vector<float> attn_norm, ffn_norm;   // [hidden]
  std::vector<float> qkv_bias;              // [q_width + 2 · kv_width], or empty
  std::vector<float> query_norm, key_norm;  // [head_dim], or empty
};

// All matrices in one arithmetic.
struct MatrixSet {
  DenseBackend* backend = nullptr;
  std::vector<LayerMatrices> layers;
  std::unique_ptr<DenseLayer> head;  // [vocab, hidden]

  size_t bytes() const;
};

struct Weights {
  std::vector<BFloat16> embedding;  // [vocab, hidden]
  std::vector<LayerVectors> layers;
  std::vector<float> output_norm;  // [hidden]
};

// Reads everything once and packs each matrix into every one of `sets`, whose backends are set. Matrices pass
// through float32 one at a time.
Weights ReadWeights(const Checkpoint& checkpoint, int threads, const std::vector<MatrixSet*>& sets,
                    const std::function<void(double)>& progress);

}  // namespace stria
