// Times the dense part of a model: transformer_bench MODEL.gguf [threads]. Attention is left out.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <vector>

#include "model/gguf/gguf_checkpoint.h"
#include "model/transformer/transformer.h"

namespace stria {
namespace {

class NoCache final : public LayerCache {
 public:
  explicit NoCache(int q_width) : q_width_(q_width) {}
  void AppendAndAttend(int layer, const AttentionRows& rows) override {
    std::copy_n(rows.q, static_cast<size_t>(rows.rows) * q_width_, rows.out);
  }

 private:
  const int q_width_;
};

double Milliseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

// Of all threads: what a step costs when other processes share the cores.
double CpuMilliseconds() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// All layers, and the head of `head_rows` rows.
void Time(Transformer& transformer, RowRole role, int rows, int head_rows, int repeats) {
  const ModelConfig& config = transformer.config();
  NoCache cache(config.q_width());
  std::vector<int32_t> tokens(rows), positions(rows);
  for (int i = 0; i < rows; ++i)
    tokens[i] = (i * 7919 + 11) % config.vocab, positions[i] = i % config.context_length;
  std::vector<float> residual(static_cast<size_t>(rows) * config.hidden);
  std::vector<float> logits(static_cast<size_t>(head_rows) * config.vocab);
  std::vector<double> times;
  TransformerTimes before;
  double cpu = 0;
  for (int repeat = -1; repeat < repeats; ++repeat) {
    if (repeat == 0) {
      before = transformer.times();
      cpu = CpuMilliseconds();
    }
    const auto start = std::chrono::steady_clock::now();
    transformer.Embed(tokens, residual.data());
    for (int layer = 0; layer < config.layers; ++layer) {
      transformer.Layer(layer, role, positions, residual.data(), cache);
    }
    transformer.Head(role, head_rows, residual.data(), logits.data());
    if (repeat >= 0) times.push_back(Milliseconds(start));
  }
  cpu = (CpuMilliseconds() - cpu) / repeats;
  std::sort(times.begin(), times.end());
  const TransformerTimes& after = transformer.times();
  const auto mean = [&](int64_t TransformerTimes::*which) {
    return (after.*which - before.*which) / 1e6 / repeats;
  };
  std::printf("%s, %3d rows: least %.2f ms, median %.2f, mean: dense %.2f, other %.2f, CPU %.2f\n",
              role == RowRole::kDecode ? "decode" : "prompt", rows, times.front(), times[times.size() / 2],
              mean(&TransformerTimes::dense), mean(&TransformerTimes::other), cpu);
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: transformer_bench MODEL.gguf [threads]\n");
    return 2;
  }
  const int threads = argc > 2 ? std::max(1, std::atoi(argv[2])) : 2;
  auto checkpoint = GgufCheckpoint::Open(argv[1]);
  if (!checkpoint.ok()) {
    std::fprintf(stderr, "%s\n", checkpoint.status().ToString().c_str());
    return 1;
  }
  for (const auto weights : {TransformerOptions::Weights::kInt8, TransformerOptions::Weights::kBf16}) {
    const double cpu = CpuMilliseconds();
    const auto start = std::chrono::steady_clock::now();
    auto transformer = Transformer::Create(**checkpoint, {.weights = weights, .threads = threads});
    if (!transformer.ok()) {
      std::fprintf(stderr, "%s\n", transformer.status().ToString().c_str());
      return 1;
    }
    Transformer& t = **transformer;
    std::printf("decode: %s; prompt: %s; loaded in %.0f ms (CPU %.0f), weights %.0f MB, scratch %.0f MB\n",
                t.arithmetic(RowRole::kDecode).data(), t.arithmetic(RowRole::kPrompt).data(),
                Milliseconds(start), CpuMilliseconds() - cpu, t.weight_bytes() / 1e6,
                t.scratch_bytes() / 1e6);
    for (const int rows : {1, 4, 8, 32}) Time(t, RowRole::kDecode, rows, rows, 15);
    if (weights == TransformerOptions::Weights::kInt8) Time(t, RowRole::kPrompt, 512, 1, 2);
  }
  return 0;
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) { return stria::Main(argc, argv); }
