#include "eval/cache_quality.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/status_macros.h"
#include "worker/next_token_kl.h"
#include "worker/sampler.h"

namespace stria {
namespace {

constexpr size_t kPage = 64;

struct Position {
  float kl, loss;
  bool agrees, deep;
};

bool Deep(const CacheVariant& variant, uint32_t position) {
  return QuantisedTokens(variant, position + 1) * 4 >= (position + 1) * 3;
}

CacheQuality Summarise(const CacheVariant& variant, std::vector<Position> positions) {
  CacheQuality quality;
  quality.name = variant.name;
  double bits = 0;
  for (const LayerAction& layer : variant.plan.layers) bits += (Bits(layer.keys) + Bits(layer.values)) / 2.0;
  quality.bits = bits / static_cast<double>(variant.plan.layers.size());
  for (size_t first = 0; first < positions.size(); first += kPage) {
    const auto page = std::span(positions).subspan(first, std::min(kPage, positions.size() - first));
    double sum = 0;
    for (const Position& position : page) sum += position.kl;
    quality.page_kl.push_back(sum / static_cast<double>(page.size()));
  }
  double deep = 0, loss = 0;
  for (const Position& position : positions) {
    quality.kl += position.kl;
    quality.agreement += position.agrees;
    loss += position.loss;
    if (!position.deep) continue;
    quality.kl_deep += position.kl;
    ++deep;
  }
  const auto count = static_cast<double>(positions.size());
  quality.kl /= count;
  quality.agreement /= count;
  quality.perplexity = std::exp(loss / count);
  quality.kl_deep = deep > 0 ? quality.kl_deep / deep : 0;
  const auto p99 = positions.begin() + static_cast<ptrdiff_t>(0.99 * (count - 1));
  std::nth_element(positions.begin(), p99, positions.end(),
                   [](const Position& a, const Position& b) { return a.kl < b.kl; });
  quality.kl_p99 = p99->kl;
  return quality;
}

}  // namespace

PairedDifference Compare(std::span<const double> a, std::span<const double> b) {
  STRIA_CHECK(a.size() == b.size() && a.size() > 1);
  const auto n = static_cast<double>(a.size());
  double sum = 0, squares = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] - b[i];
  for (size_t i = 0; i < a.size(); ++i) squares += std::pow(a[i] - b[i] - sum / n, 2);
  return {sum / n, 1.96 * std::sqrt(squares / (n - 1) / n)};
}

absl::StatusOr<std::vector<CacheQuality>> MeasureCacheQuality(Transformer& transformer,
                                                              const TeacherForcingOptions& options,
                                                              std::span<const std::vector<int32_t>> texts,
                                                              std::span<const CacheVariant> variants) {
  const int layers = transformer.config().layers;
  const size_t vocab = transformer.config().vocab;
  std::vector<CacheVariant> all = {{"FP16", UniformPlan(layers, Width::kFp16, Width::kFp16), 0}};
  all.insert(all.end(), variants.begin(), variants.end());
  // The last token of a text has nothing after it to predict.
  std::vector<std::vector<std::vector<Position>>> positions(
      texts.size(), std::vector<std::vector<Position>>(variants.size()));
  const auto sink = [&](size_t text, uint32_t position, std::span<const float> logits) {
    if (position + 1 == texts[text].size()) return;
    const int32_t next = texts[text][position + 1];
    const auto exact = logits.first(vocab);
    const double exact_log_sum = LogSumExp(exact);
    const int32_t exact_best = ArgMax(exact);
    for (size_t i = 0; i < variants.size(); ++i) {
      const auto row = logits.subspan((i + 1) * vocab, vocab);
      const double log_sum = LogSumExp(row);
      positions[text][i].push_back({.kl = static_cast<float>(NextTokenKl(exact, exact_log_sum, row, log_sum)),
                                    .loss = static_cast<float>(log_sum - row[next]),
                                    .agrees = ArgMax(row) == exact_best,
                                    .deep = Deep(variants[i], position)});
    }
  };
  STRIA_RETURN_IF_ERROR(TeacherForce(transformer, options, texts, all, sink));
  std::vector<CacheQuality> results;
  for (size_t i = 0; i < variants.size(); ++i) {
    std::vector<Position> merged;
    for (const auto& text : positions) merged.insert(merged.end(), text[i].begin(), text[i].end());
    results.push_back(Summarise(variants[i], std::move(merged)));
  }
  return results;
}

}  // namespace stria
