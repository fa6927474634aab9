// How close the kernels come to what the memory allows. Shapes of SmolLM2-135M (30 layers, 9 query and 3 KV
// heads of 64), every layer with pages of its own. Each time stands beside a read probe taken in the same
// moment; medians over the repetitions.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/random.h"
#include "kernels/attention/decode_attention.h"
#include "kernels/attention/prefill_attention.h"
#include "kernels/bench/read_probe.h"
#include "kernels/canary/canary.h"
#include "kernels/format/seal.h"

namespace stria {
namespace {

struct Options {
  AttentionShape shape = {9, 3, 64};
  int layers = 30;
  int tokens = 7168;
  int sequences = 8;
  int threads = 2;
  int repetitions = 9;
  Target target = BestTarget();
};

double Seconds(auto&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + x.size() / 2, x.end());
  return x[x.size() / 2];
}

// Numbers in about (-2, 2), the same every time.
float Number(uint64_t i) {
  return static_cast<float>(Uniform(1, 2, i) + Uniform(1, 3, i) + Uniform(1, 4, i) + Uniform(1, 5, i) - 2);
}

std::vector<Half> HalfBlock(const AttentionShape& shape, int tokens, uint64_t seed) {
  std::vector<Half> block(size_t{1} * shape.kv_heads * tokens * shape.head_dim);
  for (size_t i = 0; i < block.size(); ++i) block[i] = ToHalf(Number(seed * 1000003 + i % 100003));
  return block;
}

std::vector<float> Floats(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = 2 * Number(i);
  return x;
}

// The caches of all layers and sequences at one width, as the pool lays them out: runs of pages per
// (sequence, layer, kind).
class Caches {
 public:
  Caches(const Options& o, Width width) {
    const int pages = o.tokens / kPageTokens;
    const size_t key_bytes = KeyPageBytes(o.shape, width), value_bytes = ValuePageBytes(o.shape, width);
    ring_ = HalfBlock(o.shape, kPageTokens, 7);
    // Random pages, a few dozen, copied over and over.
    constexpr int kDistinct = 32;
    AlignedBuffer<char> keys(kDistinct * key_bytes), values(kDistinct * value_bytes);
    for (int i = 0; i < kDistinct; ++i) {
      const std::vector<Half> numbers = HalfBlock(o.shape, kPageTokens, 11 + i);
      const KvBlock block = {numbers.data(), kPageTokens * o.shape.head_dim};
      SealKeys(o.target, o.shape, width, block, keys.data() + i * key_bytes);
      SealValues(o.target, o.shape, width, block, values.data() + i * value_bytes);
    }

    bytes_ = size_t{1} * o.layers * o.sequences * pages * (key_bytes + value_bytes);
    arena_ = AlignedBuffer<char>(bytes_);
    char* at = arena_.data();
    int next = 0;
    const auto add = [&](const char* from, size_t bytes) {
      std::copy_n(from + next++ % kDistinct * bytes, bytes, at);
      refs_.push_back({std::exchange(at, at + bytes), width});
    };
    refs_.reserve(size_t{2} * o.layers * o.sequences * pages);
    kv_.resize(o.layers);
    for (auto& layer : kv_) {
      for (int s = 0; s < o.sequences; ++s) {
        SequenceKv kv;
        kv.key_pages = refs_.data() + refs_.size();
        for (int p = 0; p < pages; ++p) add(keys.data(), key_bytes);
        kv.value_pages = refs_.data() + refs_.size();
        for (int p = 0; p < pages; ++p) add(values.data(), value_bytes);
        kv.sealed_pages = pages;
        kv.key_ring = kv.value_tail = ring_.data();
        layer.push_back(kv);
      }
    }
  }

  const SequenceKv* layer(int i) const { return kv_[i].data(); }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<Half> ring_;
  size_t bytes_ = 0;
  AlignedBuffer<char> arena_;
  std::vector<PageRef> refs_;
  std::vector<std::vector<SequenceKv>> kv_;
};

nlohmann::json BenchDecode(const Options& o, Width width, ReadProbe& probe) {
  const Caches caches(o, width);
  const auto attention = DecodeAttention::Create(o.shape, o.target, o.threads);
  attention->Plan(std::vector<int>(o.sequences, o.tokens));
  const std::vector<float> q = Floats(size_t{1} * o.sequences * o.shape.heads * o.shape.head_dim);
  std::vector<float> out(q.size());
  std::vector<double> seconds, fractions;
  for (int i = -1; i < o.repetitions; ++i) {
    const double before = probe.Measure();
    const double time = Seconds([&] {
      for (int layer = 0; layer < o.layers; ++layer) {
        attention->Run(caches.layer(layer), q.data(), out.data(), caches.layer((layer + 1) % o.layers));
      }
    });
    const double limit = (before + probe.Measure()) / 2;
    if (i < 0) continue;
    seconds.push_back(time);
    fractions.push_back(caches.bytes() / time / limit);
  }
  const double time = Median(seconds);
  std::printf("decode  %-5s  %2d × %d tokens  %8.1f MB  %8.3f ms  %6.1f GB/s  %4.0f %% of read\n",
              Name(width), o.sequences, o.tokens, caches.bytes() / 1e6, time * 1e3,
              caches.bytes() / time / 1e9, 100 * Median(fractions));
  std::fflush(stdout);
  return {{"bytes", caches.bytes()},
          {"seconds", time},
          {"gbps", caches.bytes() / time / 1e9},
          {"fraction_of_read", Median(fractions)},
          {"samples", {{"seconds", seconds}, {"fraction_of_read", fractions}}}};
}

// One sequence of 16K tokens and one of 128K: the time of eight times the tokens, 8 where cost grows linearly.
nlohmann::json BenchLong(Options o, Width width, ReadProbe& probe) {
  o.sequences = 1;
  nlohmann::json result;
  double seconds[2];
  int i = 0;
  for (int tokens : {16384, 131072}) {
    o.tokens = tokens;
    nlohmann::json& of_length = result[std::to_string(tokens)] = BenchDecode(o, width, probe);
    seconds[i++] = of_length["seconds"];
  }
  result["growth"] = seconds[1] / seconds[0];
  std::printf("        %-5s  128K tokens take %.2f times as long as 16K\n", Name(width), seconds[1] / seconds[0]);
  return result;
}

// Sealing one page of keys and one of values in every layer, one thread.
nlohmann::json BenchSeal(const Options& o, Width width) {
  const std::vector<Half> block = HalfBlock(o.shape, kPageTokens * o.layers, 3);
  AlignedBuffer<char> page(KeyPageBytes(o.shape, Width::kFp16));
  std::vector<double> seconds;
  for (int i = 0; i < 5 * o.repetitions; ++i) {
    seconds.push_back(Seconds([&] {
      for (int layer = 0; layer < o.layers; ++layer) {
        const KvBlock tokens = {block.data() + layer * kPageTokens * o.shape.head_dim,
                                kPageTokens * o.shape.head_dim};
        SealKeys(o.target, o.shape, width, tokens, page.data());
        SealValues(o.target, o.shape, width, tokens, page.data());
      }
    }));
  }
  std::printf("seal    %-5s  %d layers  %8.1f µs\n", Name(width), o.layers, Median(seconds) * 1e6);
  return {{"seconds", Median(seconds)}};
}

nlohmann::json BenchCanary(const Options& o) {
  const std::vector<Half> ring = HalfBlock(o.shape, kPageTokens * o.layers, 3);
  const std::vector<float> q = Floats(o.shape.heads * o.shape.head_dim);
  std::vector<double> seconds;
  for (int i = 0; i < 5 * o.repetitions; ++i) {
    seconds.push_back(Seconds([&] {
      float out[kCanaryWidths];
      for (int layer = 0; layer < o.layers; ++layer) {
        CanaryReading(o.target, o.shape, ring.data() + layer * kPageTokens * o.shape.head_dim, kPageTokens,
                      q.data(), out);
      }
    }));
  }
  std::printf("canary         %d layers  %8.1f µs\n", o.layers, Median(seconds) * 1e6);
  return {{"seconds", Median(seconds)}};
}

nlohmann::json BenchPrefill(const Options& o, int tokens) {
  const std::vector<Half> keys = HalfBlock(o.shape, tokens, 5), values = HalfBlock(o.shape, tokens, 6);
  const std::vector<float> q = Floats(size_t{1} * tokens * o.shape.heads * o.shape.head_dim);
  std::vector<float> out(q.size());
  const auto attention = PrefillAttention::Create(o.shape, o.target, o.threads);
  std::vector<double> seconds;
  for (int i = 0; i < 3; ++i) {
    seconds.push_back(Seconds([&] {
      constexpr int kChunk = 512;
      for (int begin = 0; begin < tokens; begin += kChunk) {
        const size_t at = size_t{1} * begin * o.shape.heads * o.shape.head_dim;
        attention->Run({begin,
                        std::min(tokens, begin + kChunk),
                        q.data() + at,
                        {keys.data(), ptrdiff_t{1} * tokens * o.shape.head_dim},
                        {values.data(), ptrdiff_t{1} * tokens * o.shape.head_dim},
                        out.data() + at});
      }
    }));
  }
  const double time = Median(seconds), flops = 2.0 * tokens * tokens * o.shape.heads * o.shape.head_dim;
  std::printf("prefill %d tokens, one layer  %8.2f ms  %6.1f GFLOP/s  (× %d layers: %.3f s)\n", tokens,
              time * 1e3, flops / time / 1e9, o.layers, time * o.layers);
  std::fflush(stdout);
  return {{"seconds_per_layer", time}, {"gflops", flops / time / 1e9}};
}

int Main(int argc, char** argv) {
  Options o;
  std::string target = Name(o.target), json_path, only;
  CLI::App app("Stria's kernels against the memory's limit");
  app.add_option("--target", target, "portable, avx2, avx512 or avx512vnni");
  app.add_option("--threads", o.threads);
  app.add_option("--tokens", o.tokens, "a multiple of 64");
  app.add_option("--sequences", o.sequences);
  app.add_option("--repetitions", o.repetitions);
  app.add_option("--only", only, "decode, long, seal, canary or prefill; long (16K and 128K tokens) only runs when asked for");
  app.add_option("--json", json_path, "write the results to this file");
  CLI11_PARSE(app, argc, argv);
  const auto available = AvailableTargets();
  const auto parsed = ParseTarget(target);
  if (!parsed || std::find(available.begin(), available.end(), *parsed) == available.end()) {
    std::fprintf(stderr, "this machine cannot run target '%s'\n", target.c_str());
    return 2;
  }
  if (o.tokens < kPageTokens || o.tokens % kPageTokens != 0 || o.sequences < 1 || o.threads < 1 ||
      o.repetitions < 1) {
    std::fprintf(stderr, "tokens must be a positive multiple of %d, the other numbers positive\n",
                 kPageTokens);
    return 2;
  }
  o.target = *parsed;

  const auto wanted = [&](const char* what) { return only.empty() || only == what; };
  nlohmann::json result = {
      {"target", target}, {"threads", o.threads}, {"tokens", o.tokens}, {"sequences", o.sequences}};
  std::printf("target %s, %d threads\n", target.c_str(), o.threads);
  if (wanted("decode") || only == "long") {
    ReadProbe probe(size_t{256} << 20, o.threads);
    std::vector<double> gbps;
    for (int i = 0; i < o.repetitions; ++i) gbps.push_back(probe.Measure() / 1e9);
    result["read_gbps"] = Median(gbps);
    std::printf("read    %.1f GB/s\n", Median(gbps));
    for (Width width : {Width::kFp16, Width::kInt8, Width::kInt4, Width::kInt2}) {
      if (only == "long") {
        result["long"][Name(width)] = BenchLong(o, width, probe);
      } else {
        result["kernels"][Name(width)] = BenchDecode(o, width, probe);
      }
    }
  }
  if (wanted("seal")) {
    for (Width width : {Width::kFp16, Width::kInt8, Width::kInt4, Width::kInt2})
      result["seal"][Name(width)] = BenchSeal(o, width);
  }
  if (wanted("canary")) result["canary"] = BenchCanary(o);
  if (wanted("prefill")) {
    for (int tokens : {512, o.tokens}) result["prefill"][std::to_string(tokens)] = BenchPrefill(o, tokens);
  }
  if (!json_path.empty()) std::ofstream(json_path) << result.dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace stria

int main(int argc, char** argv) { return stria::Main(argc, argv); }
