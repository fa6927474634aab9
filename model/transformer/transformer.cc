#include "model/transformer/transformer.h"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/aligned_buffer.h"
#include "model/dense/convert.h"
#include "model/dense/dense_layer.h"
#include "model/transformer/rotary_table.h"
#include "model/transformer/row_math.h"
#include "model/transformer/weights.h"

namespace stria {
namespace {

// Rows up to so many are worked on by one thread: a team's start costs more than it saves.
constexpr int kSerialRows = 4;

absl::Status Check(const ModelConfig& c, const TransformerOptions& o) {
  const auto refuse = [](std::string_view what, int value) {
    return absl::InvalidArgumentError(
        absl::StrCat("transformer: ", absl::string_view(what.data(), what.size()), " is ", value));
  };
  if (c.layers < 1) return refuse("layers", c.layers);
  if (c.hidden < 1) return refuse("hidden", c.hidden);
  if (c.heads < 1) return refuse("heads", c.heads);
  if (c.kv_heads < 1 || c.heads % c.kv_heads != 0)
    return refuse("kv_heads, which must divide heads,", c.kv_heads);
  if (c.head_dim < 2) return refuse("head_dim", c.head_dim);
  if (c.ffn < 1) return refuse("ffn", c.ffn);
  if (c.vocab < 1) return refuse("vocab", c.vocab);
  if (c.context_length < 1) return refuse("context_length", c.context_length);
  if (c.rope_dims < 2 || c.rope_dims % 2 != 0 || c.rope_dims > c.head_dim)
    return refuse("rope_dims", c.rope_dims);
  const size_t divisors = c.rope.frequency_divisors.size();
  if (divisors != 0 && divisors != static_cast<size_t>(c.rope_dims / 2)) {
    return refuse("count of rotary divisors", static_cast<int>(divisors));
  }
  if (o.threads < 1) return refuse("threads", o.threads);
  if (o.max_decode_rows < 1) return refuse("max_decode_rows", o.max_decode_rows);
  if (o.max_prompt_rows < 1) return refuse("max_prompt_rows", o.max_prompt_rows);
  return absl::OkStatus();
}

// Adds the time since the last mark to a counter.
class Stopwatch {
 public:
  void Lap(int64_t& counter) {
    const auto now = std::chrono::steady_clock::now();
    counter += std::chrono::duration_cast<std::chrono::nanoseconds>(now - mark_).count();
    mark_ = now;
  }

 private:
  std::chrono::steady_clock::time_point mark_ = std::chrono::steady_clock::now();
};

class TransformerImpl final : public Transformer {
 public:
  TransformerImpl(const Checkpoint& checkpoint, const TransformerOptions& options,
                  const std::function<void(double)>& progress)
      : config_(checkpoint.config()), options_(options), rotary_(config_) {
    const bool integers = options.weights == TransformerOptions::Weights::kInt8;
    std::vector<MatrixSet*> sets;
    if (integers) {
      int8_backend_ = MakeInt8Backend({.threads = options.threads,
                                       .max_rows = options.max_decode_rows,
                                       .max_prompt_rows = options.max_prompt_rows});
      int8_.backend = int8_backend_.get();
      sets.push_back(&int8_);
    }
    if (!integers || !int8_backend_->runs_prompts()) {
      const int rows = std::max(options.max_prompt_rows, integers ? 0 : options.max_decode_rows);
      float_backend_ = MakeFloatBackend({.threads = options.threads, .max_rows = rows});
      float_.backend = float_backend_.get();
      sets.push_back(&float_);
    }
    weights_ = ReadWeights(checkpoint, options.threads, sets, progress);
    decode().backend->Prepare(options.max_decode_rows);

    const size_t rows = max_rows();
    normed_ = AlignedBuffer<float>(rows * config_.hidden);
    qkv_ = AlignedBuffer<float>(rows * (config_.q_width() + 2 * config_.kv_width()));
    q_ = AlignedBuffer<float>(rows * config_.q_width());
    k_ = AlignedBuffer<float>(rows * config_.kv_width());
    v_ = AlignedBuffer<float>(rows * config_.kv_width());
    attended_ = AlignedBuffer<float>(rows * config_.q_width());
    gate_up_ = AlignedBuffer<float>(rows * 2 * config_.ffn);
    activated_ = AlignedBuffer<float>(rows * config_.ffn);
    branch_ = AlignedBuffer<float>(rows * config_.hidden);
    angles_ = AlignedBuffer<float>(rows * 2 * rotary_.pairs());
  }

  const ModelConfig& config() const override { return config_; }

  size_t weight_bytes() const override {
    return float_.bytes() + int8_.bytes() + weights_.embedding.size() * sizeof(BFloat16);
  }

  size_t scratch_bytes() const override {
    return normed_.bytes() + qkv_.bytes() + q_.bytes() + k_.bytes() + v_.bytes() + attended_.bytes() +
           gate_up_.bytes() + activated_.bytes() + branch_.bytes() + angles_.bytes() +
           (float_backend_ ? float_backend_->scratch_bytes() : 0) +
           (int8_backend_ ? int8_backend_->scratch_bytes() : 0);
  }

  const TransformerTimes& times() const override { return times_; }

  std::string_view arithmetic(RowRole role) const override { return Matrices(role).backend->name(); }

  void Embed(std::span<const int32_t> tokens, float* residual) const override {
    for (size_t row = 0; row < tokens.size(); ++row) {
      STRIA_CHECK(tokens[row] >= 0 && tokens[row] < config_.vocab);
      ConvertToFloat(weights_.embedding.data() + static_cast<size_t>(tokens[row]) * config_.hidden,
                     config_.hidden, residual + row * config_.hidden);
    }
  }

  void Layer(int layer, RowRole role, std::span<const int32_t> positions, float* residual,
             LayerCache& cache) override {
    const int rows = static_cast<int>(positions.size());
    STRIA_CHECK(layer >= 0 && layer < config_.layers);
    STRIA_CHECK(rows >= 1 && rows <= MaxRows(role));
    const LayerMatrices& matrices = Matrices(role).layers[layer];
    const LayerVectors& vectors = weights_.layers[layer];
    Stopwatch watch;

    Norm(rows, residual, vectors.attn_norm.data());
    watch.Lap(times_.other);
    Multiply(role, *matrices.qkv, rows, normed_.data(), qkv_.data());
    watch.Lap(times_.dense);
    EachRow(rows, [&](int row) { SplitQkv(vectors, row, positions[row]); });
    watch.Lap(times_.other);
    cache.AppendAndAttend(
        layer, {.rows = rows, .q = q_.data(), .k = k_.data(), .v = v_.data(), .out = attended_.data()});
    watch.Lap(times_.attention);
    Multiply(role, *matrices.attn_output, rows, attended_.data(), branch_.data());
    watch.Lap(times_.dense);

    AddAndNorm(rows, residual, vectors.ffn_norm.data());
    watch.Lap(times_.other);
    Multiply(role, *matrices.gate_up, rows, normed_.data(), gate_up_.data());
    watch.Lap(times_.dense);
    EachRow(rows, [&](int row) {
      const float* gate = gate_up_.data() + static_cast<size_t>(row) * 2 * config_.ffn;
      SwiGlu(gate, gate + config_.ffn, config_.ffn,
             activated_.data() + static_cast<size_t>(row) * config_.ffn);
    });
    watch.Lap(times_.other);
    Multiply(role, *matrices.down, rows, activated_.data(), branch_.data());
    watch.Lap(times_.dense);
    AddInto(branch_.data(), rows * config_.hidden, residual);
    watch.Lap(times_.other);
  }

  void Head(RowRole role, int rows, const float* residual, float* logits) override {
    STRIA_CHECK(rows >= 1 && rows <= MaxRows(role));
    Stopwatch watch;
    Norm(rows, residual, weights_.output_norm.data());
    watch.Lap(times_.other);
    // What is sampled is worth a decode row's arithmetic, as many rows at a time as there is scratch for.
    const int most = int8_backend_ && role == RowRole::kPrompt ? options_.max_decode_rows : rows;
    for (int row = 0; row < rows; row += most) {
      Matrices(role).head->Run(std::min(most, rows - row), normed_.data() + static_cast<size_t>(row) * config_.hidden,
                               logits + static_cast<size_t>(row) * config_.vocab);
    }
    watch.Lap(times_.dense);
  }

 private:
  int max_rows() const { return std::max(options_.max_decode_rows, options_.max_prompt_rows); }
  int MaxRows(RowRole role) const {
    return role == RowRole::kDecode ? options_.max_decode_rows : options_.max_prompt_rows;
  }
  const MatrixSet& decode() const { return int8_backend_ ? int8_ : float_; }
  const MatrixSet& Matrices(RowRole role) const {
    return role == RowRole::kDecode || !float_backend_ ? decode() : float_;
  }

  void Multiply(RowRole role, DenseLayer& layer, int rows, const float* x, float* y) const {
    if (role == RowRole::kPrompt && !float_backend_) {
      layer.RunPrompt(rows, x, y);
    } else {
      layer.Run(rows, x, y);
    }
  }

  template <typename Body>
  void EachRow(int rows, const Body& body) const {
#pragma omp parallel for num_threads(options_.threads) schedule(static) if (rows > kSerialRows)
    for (int row = 0; row < rows; ++row) body(row);
  }

  void Norm(int rows, const float* residual, const float* weight) {
    EachRow(rows, [&](int row) {
      const size_t at = static_cast<size_t>(row) * config_.hidden;
      RmsNorm(residual + at, weight, config_.norm_epsilon, config_.hidden, normed_.data() + at);
    });
  }

  void AddAndNorm(int rows, float* residual, const float* weight) {
    EachRow(rows, [&](int row) {
      const size_t at = static_cast<size_t>(row) * config_.hidden;
      AddInto(branch_.data() + at, config_.hidden, residual + at);
      RmsNorm(residual + at, weight, config_.norm_epsilon, config_.hidden, normed_.data() + at);
    });
  }

  // One row of qkv_ → bias, QK norm, rotation → q_, k_, v_.
  void SplitQkv(const LayerVectors& vectors, int row, int position) {
    STRIA_CHECK(position >= 0 && position < config_.context_length);
    const int q_width = config_.q_width(), kv_width = config_.kv_width();
    const int width = q_width + 2 * kv_width;
    float* from = qkv_.data() + static_cast<size_t>(row) * width;
    if (!vectors.qkv_bias.empty()) AddInto(vectors.qkv_bias.data(), width, from);
    float* cosines = angles_.data() + static_cast<size_t>(row) * 2 * rotary_.pairs();
    const float* sines = cosines + rotary_.pairs();
    rotary_.Angles(position, cosines, cosines + rotary_.pairs());
    RotateHeads(from, config_.heads, vectors.query_norm, cosines, sines,
                q_.data() + static_cast<size_t>(row) * q_width);
    RotateHeads(from + q_width, config_.kv_heads, vectors.key_norm, cosines, sines,
                k_.data() + static_cast<size_t>(row) * kv_width);
    std::copy_n(from + q_width + kv_width, kv_width, v_.data() + static_cast<size_t>(row) * kv_width);
  }

  void RotateHeads(float* from, int heads, const std::vector<float>& norm, const float* cosines,
                   const float* sines, float* to) const {
    const int dim = config_.head_dim;
    for (int head = 0; head < heads; ++head, from += dim, to += dim) {
      if (!norm.empty()) RmsNorm(from, norm.data(), config_.norm_epsilon, dim, from);
      Rotate(from, cosines, sines, rotary_.pairs(), dim, to);
    }
  }

  const ModelConfig config_;
  const TransformerOptions options_;
  const RotaryTable rotary_;
  std::unique_ptr<DenseBackend> float_backend_, int8_backend_;  // those that a role needs
  MatrixSet float_, int8_;
  Weights weights_;
  TransformerTimes times_;
  // Activations of the rows in flight, [max_rows, …].
  AlignedBuffer<float> normed_, qkv_, q_, k_, v_, attended_, gate_up_, activated_, branch_, angles_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(const Checkpoint& checkpoint,
                                                                 const TransformerOptions& options,
                                                                 std::function<void(double)> progress) {
  STRIA_RETURN_IF_ERROR(Check(checkpoint.config(), options));
  omp_set_num_threads(options.threads);
  return std::make_unique<TransformerImpl>(checkpoint, options, progress);
}

}  // namespace stria
