#include "model/transformer/weights.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "base/aligned_buffer.h"
#include "model/dense/convert.h"

namespace stria {
namespace {

struct Part {
  WeightRole role;
  int rows;
};

class Reader {
 public:
  Reader(const Checkpoint& checkpoint, int threads) : checkpoint_(checkpoint), threads_(threads) {}

  // The parts' rows one below the other: [sum of rows, cols].
  AlignedBuffer<float> Matrix(std::initializer_list<Part> parts, int layer, int cols) const {
    constexpr int kRowsPerTask = 64;
    int rows = 0;
    for (const Part& part : parts) rows += part.rows;
    AlignedBuffer<float> matrix(static_cast<size_t>(rows) * cols);
    float* out = matrix.data();
    for (const Part& part : parts) {
#pragma omp parallel for num_threads(threads_) schedule(dynamic)
      for (int row = 0; row < part.rows; row += kRowsPerTask) {
        checkpoint_.Read(part.role, layer, row, std::min(row + kRowsPerTask, part.rows),
                         out + static_cast<int64_t>(row) * cols);
      }
      out += static_cast<int64_t>(part.rows) * cols;
    }
    return matrix;
  }

  std::vector<float> Vector(std::initializer_list<Part> parts, int layer) const {
    std::vector<float> vector;
    for (const Part& part : parts) {
      const size_t begin = vector.size();
      vector.resize(begin + part.rows);
      checkpoint_.Read(part.role, layer, 0, 1, vector.data() + begin);
    }
    return vector;
  }

 private:
  const Checkpoint& checkpoint_;
  const int threads_;
};

}  // namespace

size_t MatrixSet::bytes() const {
  size_t sum = head == nullptr ? 0 : head->weight_bytes();
  for (const LayerMatrices& layer : layers) {
    sum += layer.qkv->weight_bytes() + layer.attn_output->weight_bytes() + layer.gate_up->weight_bytes() +
           layer.down->weight_bytes();
  }
  return sum;
}

Weights ReadWeights(const Checkpoint& checkpoint, int threads, const std::vector<MatrixSet*>& sets,
                    const std::function<void(double)>& progress) {
  const ModelConfig& config = checkpoint.config();
  const Reader reader(checkpoint, threads);
  const double layer_weights = static_cast<double>(config.hidden) *
                               (2.0 * config.q_width() + 2.0 * config.kv_width() + 3.0 * config.ffn);
  const double head_weights = static_cast<double>(config.vocab) * config.hidden;
  double done = 0;
  const auto report = [&](double more) {
    done += more;
    if (progress) progress(std::min(1.0, done / (head_weights + config.layers * layer_weights)));
  };

  Weights weights;
  // The widest matrix first, while little else is held.
  {
    AlignedBuffer<float> matrix = reader.Matrix({{WeightRole::kEmbedding, config.vocab}}, 0, config.hidden);
    weights.embedding.resize(static_cast<size_t>(config.vocab) * config.hidden);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int row = 0; row < config.vocab; ++row) {
      const int64_t at = static_cast<int64_t>(row) * config.hidden;
      ConvertToBFloat16(matrix.data() + at, config.hidden, weights.embedding.data() + at);
    }
    if (!config.tied_embeddings)
      matrix = reader.Matrix({{WeightRole::kOutput, config.vocab}}, 0, config.hidden);
    for (MatrixSet* set : sets) set->head = set->backend->Pack(matrix.data(), config.vocab, config.hidden);
    report(head_weights);
  }
  weights.output_norm = reader.Vector({{WeightRole::kOutputNorm, config.hidden}}, 0);

  for (MatrixSet* set : sets) set->layers.resize(config.layers);
  weights.layers.resize(config.layers);
  const int qkv_width = config.q_width() + 2 * config.kv_width();
  for (int layer = 0; layer < config.layers; ++layer) {
    const auto pack = [&](std::unique_ptr<DenseLayer> LayerMatrices::*which,
                          std::initializer_list<Part> parts, int out, int in) {
      const AlignedBuffer<float> matrix = reader.Matrix(parts, layer, in);
      for (MatrixSet* set : sets) set->layers[layer].*which = set->backend->Pack(matrix.data(), out, in);
    };
    pack(&LayerMatrices::qkv,
         {{WeightRole::kQuery, config.q_width()},
          {WeightRole::kKey, config.kv_width()},
          {WeightRole::kValue, config.kv_width()}},
         qkv_width, config.hidden);
    pack(&LayerMatrices::attn_output, {{WeightRole::kAttnOutput, config.hidden}}, config.hidden,
         config.q_width());
    pack(&LayerMatrices::gate_up, {{WeightRole::kGate, config.ffn}, {WeightRole::kUp, config.ffn}},
         2 * config.ffn, config.hidden);
    pack(&LayerMatrices::down, {{WeightRole::kDown, config.hidden}}, config.hidden, config.ffn);

    LayerVectors& vectors = weights.layers[layer];
    vectors.attn_norm = reader.Vector({{WeightRole::kAttnNorm, config.hidden}}, layer);
    vectors.ffn_norm = reader.Vector({{WeightRole::kFfnNorm, config.hidden}}, layer);
    if (config.qkv_bias) {
      vectors.qkv_bias = reader.Vector({{WeightRole::kQueryBias, config.q_width()},
                                        {WeightRole::kKeyBias, config.kv_width()},
                                        {WeightRole::kValueBias, config.kv_width()}},
                                       layer);
    }
    if (config.qk_norm) {
      vectors.query_norm = reader.Vector({{WeightRole::kQueryNorm, config.head_dim}}, layer);
      vectors.key_norm = reader.Vector({{WeightRole::kKeyNorm, config.head_dim}}, layer);
    }
    report(layer_weights);
  }
  return weights;
}

}  // namespace stria
