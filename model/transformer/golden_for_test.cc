#include "model/transformer/golden_for_test.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "base/check.h"
#include "gtest/gtest.h"
#include "model/transformer/plain_cache.h"
#include "nlohmann/json.hpp"

namespace stria {
namespace {

constexpr int kPromptChunk = 64;

int Best(std::span<const float> logits) {
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

struct Rows {
  std::vector<int> sequences;
  std::vector<int32_t> tokens, positions;

  void Add(int sequence, int32_t token, int position) {
    sequences.push_back(sequence);
    tokens.push_back(token);
    positions.push_back(position);
  }
};

// All layers over the rows. Logits [rows - first, vocab] of the rows from `first` on.
std::vector<float> Advance(Transformer& transformer, PlainCache& cache, RowRole role, const Rows& rows,
                           int first = 0) {
  const ModelConfig& config = transformer.config();
  const int count = static_cast<int>(rows.tokens.size());
  cache.SetRows(rows.sequences);
  std::vector<float> residual(static_cast<size_t>(count) * config.hidden);
  transformer.Embed(rows.tokens, residual.data());
  for (int layer = 0; layer < config.layers; ++layer) {
    transformer.Layer(layer, role, rows.positions, residual.data(), cache);
  }
  std::vector<float> logits(static_cast<size_t>(count - first) * config.vocab);
  transformer.Head(role, count - first, residual.data() + static_cast<size_t>(first) * config.hidden,
                   logits.data());
  return logits;
}

}  // namespace

std::vector<GreedyRun> ReadGreedyRuns(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.contains("runs")) {
    std::fprintf(stderr, "%s: no recorded runs\n", path.c_str());
    std::abort();
  }
  std::vector<GreedyRun> runs;
  for (const auto& run : json.at("runs")) {
    runs.push_back({run.at("prompt"), run.at("tokens"), run.at("gaps")});
    STRIA_CHECK(runs.back().tokens.size() == runs.back().gaps.size());
  }
  return runs;
}

int CountEqual(Transformer& transformer, const std::vector<GreedyRun>& runs, double near_tie) {
  const int count = static_cast<int>(runs.size());
  PlainCache cache(transformer.config(), count, PlainCache::Storage::kFp16);
  const size_t vocab = transformer.config().vocab;
  std::vector<std::vector<int32_t>> texts(count);
  for (int i = 0; i < count; ++i) {
    const int length = static_cast<int>(runs[i].prompt.size());
    for (int begin = 0; begin < length; begin += kPromptChunk) {
      const int end = std::min(length, begin + kPromptChunk);
      Rows rows;
      for (int t = begin; t < end; ++t) rows.Add(i, runs[i].prompt[t], t);
      const std::vector<float> logits = Advance(transformer, cache, RowRole::kPrompt, rows, end - begin - 1);
      if (end == length) texts[i].push_back(Best(logits));
    }
  }
  for (;;) {
    Rows rows;
    for (int i = 0; i < count; ++i) {
      const size_t done = texts[i].size();
      // A sequence is worth going on with while it agrees.
      if (done >= runs[i].tokens.size() || texts[i].back() != runs[i].tokens[done - 1]) continue;
      rows.Add(i, texts[i].back(), static_cast<int>(runs[i].prompt.size() + done - 1));
    }
    if (rows.tokens.empty()) break;
    const std::vector<float> logits = Advance(transformer, cache, RowRole::kDecode, rows);
    for (size_t row = 0; row < rows.tokens.size(); ++row) {
      texts[rows.sequences[row]].push_back(Best({logits.data() + row * vocab, vocab}));
    }
  }
  int equal = 0;
  for (int i = 0; i < count; ++i) {
    const size_t last = texts[i].size() - 1;
    if (texts[i][last] == runs[i].tokens[last]) {
      ++equal;
      continue;
    }
    std::printf("run %d: first different at token %zu, where the recorded gap is %.4f\n", i, last,
                runs[i].gaps[last]);
    EXPECT_LT(runs[i].gaps[last], near_tie) << "run " << i << ", token " << last;
  }
  std::printf("%d of %d runs equal\n", equal, count);
  return equal;
}

GoldenScore ScoreThroughDecodeSteps(Transformer& transformer, const GoldenLogits& golden, RowRole arithmetic) {
  const size_t vocab = transformer.config().vocab;
  STRIA_CHECK(golden.vocab == transformer.config().vocab);
  const int contexts = static_cast<int>(golden.contexts.size());
  PlainCache cache(transformer.config(), contexts, PlainCache::Storage::kFp16);
  GoldenScore score;
  for (int t = 0;; ++t) {
    Rows rows;
    for (int i = 0; i < contexts; ++i) {
      const std::vector<int32_t>& tokens = golden.contexts[i].tokens;
      if (t < static_cast<int>(tokens.size())) rows.Add(i, tokens[t], t);
    }
    if (rows.tokens.empty()) break;
    const std::vector<float> logits = Advance(transformer, cache, arithmetic, rows);
    for (size_t row = 0; row < rows.tokens.size(); ++row) {
      const std::span<const float> of_row(logits.data() + row * vocab, vocab);
      const GoldenPosition& position = golden.contexts[rows.sequences[row]].positions[t];
      score.kl += GoldenKl(position, of_row);
      score.agreement += Best(of_row) == position.tokens[0];
      ++score.tokens;
    }
  }
  score.kl /= score.tokens;
  score.agreement /= score.tokens;
  return score;
}

}  // namespace stria
