#include "model/transformer/reference_for_test.h"

#include <algorithm>
#include <cmath>

#include "base/float16.h"
#include "base/random.h"
#include "model/transformer/rotary_table.h"

namespace stria {
namespace {

using Matrix = RandomCheckpoint::Matrix;
using Values = std::vector<double>;

bool IsVector(WeightRole role) {
  switch (role) {
    case WeightRole::kAttnNorm:
    case WeightRole::kFfnNorm:
    case WeightRole::kOutputNorm:
    case WeightRole::kQueryNorm:
    case WeightRole::kKeyNorm:
    case WeightRole::kQueryBias:
    case WeightRole::kKeyBias:
    case WeightRole::kValueBias:
      return true;
    default:
      return false;
  }
}

Values Multiply(const Matrix& w, const Values& x) {
  Values y(w.rows);
  for (int o = 0; o < w.rows; ++o) {
    for (int i = 0; i < w.cols; ++i)
      y[o] += static_cast<double>(w.values[static_cast<size_t>(o) * w.cols + i]) * x[i];
  }
  return y;
}

void Norm(const Matrix& weight, double epsilon, double* x, int n) {
  double squares = 0;
  for (int i = 0; i < n; ++i) squares += x[i] * x[i];
  for (int i = 0; i < n; ++i) x[i] *= weight.values[i] / std::sqrt(squares / n + epsilon);
}

void Add(const Matrix& bias, Values& x) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += bias.values[i];
}

}  // namespace

RandomCheckpoint::RandomCheckpoint(const ModelConfig& config, uint64_t seed) : config_(config) {
  const auto add = [&](WeightRole role, int layer, int rows, int cols) {
    Matrix& matrix = weights_[{role, layer}];
    matrix = {rows, cols, std::vector<float>(static_cast<size_t>(rows) * cols)};
    const uint64_t stream = static_cast<uint64_t>(role) * 1000 + layer;
    for (size_t i = 0; i < matrix.values.size(); ++i) {
      const float unit = static_cast<float>(2 * Uniform(seed, stream, i) - 1);
      matrix.values[i] = IsVector(role) ? 1 + 0.5f * unit : unit * std::sqrt(6.0f / static_cast<float>(cols));
    }
  };
  const int hidden = config.hidden, q = config.q_width(), kv = config.kv_width();
  add(WeightRole::kEmbedding, 0, config.vocab, hidden);
  add(WeightRole::kOutputNorm, 0, 1, hidden);
  if (!config.tied_embeddings) add(WeightRole::kOutput, 0, config.vocab, hidden);
  for (int layer = 0; layer < config.layers; ++layer) {
    add(WeightRole::kAttnNorm, layer, 1, hidden);
    add(WeightRole::kQuery, layer, q, hidden);
    add(WeightRole::kKey, layer, kv, hidden);
    add(WeightRole::kValue, layer, kv, hidden);
    if (config.qkv_bias) {
      add(WeightRole::kQueryBias, layer, 1, q);
      add(WeightRole::kKeyBias, layer, 1, kv);
      add(WeightRole::kValueBias, layer, 1, kv);
    }
    if (config.qk_norm) {
      add(WeightRole::kQueryNorm, layer, 1, config.head_dim);
      add(WeightRole::kKeyNorm, layer, 1, config.head_dim);
    }
    add(WeightRole::kAttnOutput, layer, hidden, q);
    add(WeightRole::kFfnNorm, layer, 1, hidden);
    add(WeightRole::kGate, layer, config.ffn, hidden);
    add(WeightRole::kUp, layer, config.ffn, hidden);
    add(WeightRole::kDown, layer, hidden, config.ffn);
  }
  if (config.tied_embeddings) weights_[{WeightRole::kOutput, 0}] = At(WeightRole::kEmbedding, 0);
}

void RandomCheckpoint::Read(WeightRole role, int layer, int row_begin, int row_end, float* out) const {
  const bool once =
      role == WeightRole::kEmbedding || role == WeightRole::kOutputNorm || role == WeightRole::kOutput;
  const Matrix& matrix = At(role, once ? 0 : layer);
  std::copy(matrix.values.begin() + static_cast<ptrdiff_t>(row_begin) * matrix.cols,
            matrix.values.begin() + static_cast<ptrdiff_t>(row_end) * matrix.cols, out);
}

RandomCheckpoint Rounded(const RandomCheckpoint& checkpoint, Rounding rounding) {
  RandomCheckpoint rounded = checkpoint;
  const auto round = [&](WeightRole role, int layer, Rounding how) {
    Matrix& matrix = rounded.At(role, layer);
    for (int row = 0; row < matrix.rows; ++row) {
      float* values = matrix.values.data() + static_cast<size_t>(row) * matrix.cols;
      float peak = 0;
      for (int i = 0; i < matrix.cols; ++i) peak = std::max(peak, std::abs(values[i]));
      for (int i = 0; i < matrix.cols; ++i) {
        values[i] = how == Rounding::kBf16 ? ToFloat(ToBFloat16(values[i]))
                                           : std::nearbyint(values[i] * (127 / peak)) * (peak / 127);
      }
    }
  };
  round(WeightRole::kEmbedding, 0, Rounding::kBf16);
  round(WeightRole::kOutput, 0, rounding);
  for (int layer = 0; layer < checkpoint.config().layers; ++layer) {
    for (const WeightRole role :
         {WeightRole::kQuery, WeightRole::kKey, WeightRole::kValue, WeightRole::kAttnOutput,
          WeightRole::kGate, WeightRole::kUp, WeightRole::kDown}) {
      round(role, layer, rounding);
    }
  }
  return rounded;
}

std::vector<double> ReferenceLogits(const RandomCheckpoint& checkpoint, std::span<const int32_t> tokens) {
  const ModelConfig& config = checkpoint.config();
  const std::vector<double> frequencies = RotaryFrequencies(config);
  const double magnitude = config.rope.kind == RopeScaling::Kind::kYarn ? config.rope.attention_factor : 1;
  const int n = static_cast<int>(tokens.size()), dim = config.head_dim;
  const auto prepare_heads = [&](Values& x, int heads, const Matrix* norm, int position) {
    for (int head = 0; head < heads; ++head) {
      double* at = x.data() + static_cast<size_t>(head) * dim;
      if (norm != nullptr) Norm(*norm, config.norm_epsilon, at, dim);
      for (size_t i = 0; i < frequencies.size(); ++i) {
        const double cosine = magnitude * std::cos(position * frequencies[i]);
        const double sine = magnitude * std::sin(position * frequencies[i]);
        const double a = at[i], b = at[i + frequencies.size()];
        at[i] = a * cosine - b * sine;
        at[i + frequencies.size()] = a * sine + b * cosine;
      }
    }
  };

  std::vector<Values> x(n);
  const Matrix& embedding = checkpoint.At(WeightRole::kEmbedding, 0);
  for (int t = 0; t < n; ++t) {
    const auto row = embedding.values.begin() + static_cast<ptrdiff_t>(tokens[t]) * config.hidden;
    x[t].assign(row, row + config.hidden);
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    const auto at = [&](WeightRole role) -> const Matrix& { return checkpoint.At(role, layer); };
    std::vector<Values> q(n), k(n), v(n);
    for (int t = 0; t < n; ++t) {
      Values h = x[t];
      Norm(at(WeightRole::kAttnNorm), config.norm_epsilon, h.data(), config.hidden);
      q[t] = Multiply(at(WeightRole::kQuery), h);
      k[t] = Multiply(at(WeightRole::kKey), h);
      v[t] = Multiply(at(WeightRole::kValue), h);
      if (config.qkv_bias) {
        Add(at(WeightRole::kQueryBias), q[t]);
        Add(at(WeightRole::kKeyBias), k[t]);
        Add(at(WeightRole::kValueBias), v[t]);
      }
      prepare_heads(q[t], config.heads, config.qk_norm ? &at(WeightRole::kQueryNorm) : nullptr, t);
      prepare_heads(k[t], config.kv_heads, config.qk_norm ? &at(WeightRole::kKeyNorm) : nullptr, t);
    }
    for (int t = 0; t < n; ++t) {
      Values attended(config.q_width());
      for (int head = 0; head < config.heads; ++head) {
        const int kv_at = head / config.group() * dim;
        Values weights(t + 1);
        double total = 0;
        for (int s = 0; s <= t; ++s) {
          double score = 0;
          for (int i = 0; i < dim; ++i) score += q[t][head * dim + i] * k[s][kv_at + i];
          total += weights[s] = std::exp(score / std::sqrt(static_cast<double>(dim)));
        }
        for (int s = 0; s <= t; ++s) {
          for (int i = 0; i < dim; ++i) attended[head * dim + i] += weights[s] / total * v[s][kv_at + i];
        }
      }
      const Values branch = Multiply(at(WeightRole::kAttnOutput), attended);
      for (int i = 0; i < config.hidden; ++i) x[t][i] += branch[i];
      Values h = x[t];
      Norm(at(WeightRole::kFfnNorm), config.norm_epsilon, h.data(), config.hidden);
      Values gate = Multiply(at(WeightRole::kGate), h);
      const Values up = Multiply(at(WeightRole::kUp), h);
      for (int i = 0; i < config.ffn; ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      const Values down = Multiply(at(WeightRole::kDown), gate);
      for (int i = 0; i < config.hidden; ++i) x[t][i] += down[i];
    }
  }
  std::vector<double> logits;
  for (Values& row : x) {
    Norm(checkpoint.At(WeightRole::kOutputNorm, 0), config.norm_epsilon, row.data(), config.hidden);
    const Values of_row = Multiply(checkpoint.At(WeightRole::kOutput, 0), row);
    logits.insert(logits.end(), of_row.begin(), of_row.end());
  }
  return logits;
}

}  // namespace stria
