// A tiny transformer in plain loops with random weights, for the engine's tests: every row is computed by
// itself, so a row's result depends on the cache alone. Rotary embedding is replaced by adding a
// position-dependent vector.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include "base/random.h"
#include "model/transformer/transformer.h"

namespace stria {

class FakeTransformer : public Transformer {
 public:
  struct Shape {
    int layers = 3, heads = 4, kv_heads = 2, head_dim = 16, vocab = 61, context = 4096;
  };
  explicit FakeTransformer(const Shape& shape) {
    config_.architecture = "fake";
    config_.layers = shape.layers;
    config_.hidden = 32;
    config_.heads = shape.heads;
    config_.kv_heads = shape.kv_heads;
    config_.head_dim = shape.head_dim;
    config_.ffn = 32;
    config_.vocab = shape.vocab;
    config_.context_length = shape.context;
    embedding_ = Random(size_t(shape.vocab) * config_.hidden, 1.0f);
    for (int i = 0; i < shape.layers; ++i) {
      const int in = config_.hidden;
      layers_.push_back(
          {Random(size_t(config_.q_width()) * in, 0.5f), Random(size_t(config_.kv_width()) * in, 0.5f),
           Random(size_t(config_.kv_width()) * in, 0.5f), Random(size_t(in) * config_.q_width(), 0.3f)});
    }
  }
  FakeTransformer() : FakeTransformer(Shape()) {}

  const ModelConfig& config() const override { return config_; }
  size_t weight_bytes() const override { return 0; }
  size_t scratch_bytes() const override { return 0; }
  const TransformerTimes& times() const override { return times_; }
  std::string_view arithmetic(RowRole) const override { return "plain"; }

  void Embed(std::span<const int32_t> tokens, float* residual) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      std::copy_n(embedding_.data() + size_t(tokens[i]) * config_.hidden, config_.hidden,
                  residual + i * config_.hidden);
  }

  void Layer(int layer, RowRole, std::span<const int32_t> positions, float* residual,
             LayerCache& cache) override {
    const int rows = static_cast<int>(positions.size()), hidden = config_.hidden;
    const Weights& w = layers_[layer];
    std::vector<float> q(size_t(rows) * config_.q_width()), k(size_t(rows) * config_.kv_width()), v(k.size()),
        out(q.size());
    for (int i = 0; i < rows; ++i) {
      std::vector<float> x(residual + size_t(i) * hidden, residual + size_t(i + 1) * hidden);
      for (int c = 0; c < hidden; ++c)
        x[c] += 0.5f * std::sin(static_cast<float>(positions[i]) / static_cast<float>(c + 1));
      Multiply(w.query, x.data(), hidden, q.data() + size_t(i) * config_.q_width(), config_.q_width());
      Multiply(w.key, x.data(), hidden, k.data() + size_t(i) * config_.kv_width(), config_.kv_width());
      Multiply(w.value, x.data(), hidden, v.data() + size_t(i) * config_.kv_width(), config_.kv_width());
    }
    cache.AppendAndAttend(layer, {rows, q.data(), k.data(), v.data(), out.data()});
    std::vector<float> delta(hidden);
    for (int i = 0; i < rows; ++i) {
      Multiply(w.output, out.data() + size_t(i) * config_.q_width(), config_.q_width(), delta.data(), hidden);
      for (int c = 0; c < hidden; ++c)
        residual[size_t(i) * hidden + c] = std::tanh(residual[size_t(i) * hidden + c] + delta[c]);
    }
  }

  void Head(RowRole, int rows, const float* residual, float* logits) override {
    for (int i = 0; i < rows; ++i)
      Multiply(embedding_, residual + size_t(i) * config_.hidden, config_.hidden,
               logits + size_t(i) * config_.vocab, config_.vocab);
  }

 private:
  struct Weights {
    std::vector<float> query, key, value, output;
  };

  std::vector<float> Random(size_t count, float scale) {
    std::vector<float> values(count);
    for (float& value : values) value = scale * static_cast<float>(2 * Uniform(1, 0, draws_++) - 1);
    return values;
  }
  static void Multiply(const std::vector<float>& matrix, const float* x, int in, float* y, int out) {
    for (int i = 0; i < out; ++i) {
      double sum = 0;
      for (int j = 0; j < in; ++j) sum += double(matrix[size_t(i) * in + j]) * x[j];
      y[i] = static_cast<float>(sum);
    }
  }

  ModelConfig config_;
  TransformerTimes times_;
  uint64_t draws_ = 0;
  std::vector<float> embedding_;
  std::vector<Weights> layers_;
};

}  // namespace stria
