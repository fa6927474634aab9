#include "eval/kernel_quality.h"

#include <array>
#include <span>

#include "base/status_macros.h"
#include "worker/next_token_kl.h"
#include "worker/teacher_forcing.h"

namespace stria {

absl::StatusOr<std::vector<KernelQuality>> MeasureKernelQuality(Transformer& transformer, Target target, int threads,
                                                                const std::vector<std::vector<int32_t>>& texts) {
  constexpr std::array kWidths = {Width::kFp16, Width::kInt8, Width::kInt4, Width::kInt2};
  const int layers = transformer.config().layers;
  const size_t vocab = transformer.config().vocab;
  std::vector<CacheVariant> variants;  // each width in double, then by the target
  for (const Width width : kWidths) {
    for (const bool exact : {true, false})
      variants.push_back({Name(width), UniformPlan(layers, width, width), /*sink_pages=*/1, exact});
  }
  std::vector<std::vector<KernelQuality>> sums(texts.size(), std::vector<KernelQuality>(kWidths.size()));
  size_t positions = 0;
  for (const auto& text : texts) positions += text.size();
  const auto sink = [&](size_t text, uint32_t, std::span<const float> logits) {
    const auto row = [&](size_t variant) { return logits.subspan(variant * vocab, vocab); };
    for (size_t i = 0; i < kWidths.size(); ++i) {
      sums[text][i].width_kl += NextTokenKl(row(0), row(2 * i));
      sums[text][i].kernel_kl += NextTokenKl(row(2 * i), row(2 * i + 1));
      sums[text][i].both_kl += NextTokenKl(row(0), row(2 * i + 1));
    }
  };
  const TeacherForcingOptions options{.target = target, .threads = threads, .max_rows = static_cast<int>(variants.size())};
  STRIA_RETURN_IF_ERROR(TeacherForce(transformer, options, texts, variants, sink));
  std::vector<KernelQuality> results(kWidths.size());
  for (size_t i = 0; i < kWidths.size(); ++i) {
    results[i].width = kWidths[i];
    for (const auto& of_text : sums) {
      results[i].width_kl += of_text[i].width_kl / static_cast<double>(positions);
      results[i].kernel_kl += of_text[i].kernel_kl / static_cast<double>(positions);
      results[i].both_kl += of_text[i].both_kl / static_cast<double>(positions);
    }
  }
  return results;
}

}  // namespace stria
