#include "eval/prefix_quality.h"

#include <memory>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/engine.h"
#include "worker/next_token_kl.h"
#include "worker/teacher_forcing.h"

namespace stria {
namespace {

constexpr uint64_t kPoolBytes = uint64_t{512} << 20;
constexpr uint64_t kMeasured = 2;  // id of the sequence whose logits count
constexpr uint32_t kPart = 64;     // tokens of a page: the parts of a text are multiples

using Rows = std::vector<std::vector<float>>;

struct Recorder : LogitsObserver {
  void OnLogits(const SequenceName& name, uint32_t, std::span<const float> logits) override {
    if (name.id == kMeasured) rows.emplace_back(logits.begin(), logits.end());
  }
  Rows rows;
};

// Runs one sequence to its end; returns what its usage says was shared.
absl::StatusOr<uint64_t> Run(Engine& engine, const StartSequence& start) {
  STRIA_RETURN_IF_ERROR(engine.Start(start));
  uint64_t cached = 0;
  while (engine.HasWork())
    for (const SequenceOutput& output : engine.Turn().outputs) {
      if (output.finish == FinishReason::kError) return absl::InternalError(output.message);
      if (output.finish != FinishReason::kNone) cached = output.kv.cached_tokens;
    }
  return cached;
}

// The rows of logits behind the prompt, with the text's beginning shared or not.
absl::StatusOr<Rows> Measure(Transformer& transformer, const PrefixQualityOptions& options,
                             const std::vector<int32_t>& text, Width width, bool share) {
  Recorder recorder;
  EngineOptions engine_options;
  engine_options.pool_bytes = kPoolBytes;
  engine_options.max_sequences = 1;
  engine_options.prefix_cache_bytes = share ? kPoolBytes : 0;
  engine_options.threads = options.threads;
  engine_options.observer = &recorder;
  STRIA_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                         Engine::Create(transformer, engine_options, SystemClock()));
  const size_t quarter = text.size() / (4 * kPart) * kPart, shared = 2 * quarter, prompt = 3 * quarter;
  StartSequence start;
  start.sampling.temperature = 0;
  start.plan = UniformPlan(transformer.config().layers, width, width);
  if (share) {
    const size_t computed = options.decoded ? 1 : shared;  // the others are forced
    start.name.id = 1;
    start.prompt.assign(text.begin(), text.begin() + computed);
    start.forced.assign(text.begin() + computed, text.begin() + shared + 1);  // the last one is never fed
    STRIA_RETURN_IF_ERROR(Run(*engine, start).status());
  }
  start.name.id = kMeasured;
  start.prompt.assign(text.begin(), text.begin() + prompt);
  start.forced.assign(text.begin() + prompt, text.begin() + prompt + quarter);
  STRIA_ASSIGN_OR_RETURN(const uint64_t cached, Run(*engine, start));
  if (cached != (share ? shared : 0))
    return absl::InternalError(absl::StrCat(cached, " tokens were shared, not ", shared));
  return std::move(recorder.rows);
}

double MeanKl(const Rows& p, const Rows& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += NextTokenKl(p[i], q[i]);
  return sum / static_cast<double>(p.size());
}

}  // namespace

absl::StatusOr<std::vector<PrefixQuality>> MeasurePrefixQuality(Transformer& transformer,
                                                                const PrefixQualityOptions& options,
                                                                const std::vector<std::vector<int32_t>>& texts,
                                                                const std::vector<Width>& widths) {
  std::vector<PrefixQuality> results;
  for (Width width : widths) results.push_back({.width = width});
  const auto share = 1 / static_cast<double>(texts.size());
  for (const std::vector<int32_t>& text : texts) {
    if (text.size() < 4 * kPart)
      return absl::InvalidArgumentError(absl::StrCat("a text of ", text.size(), " tokens; at least ", 4 * kPart));
    STRIA_ASSIGN_OR_RETURN(const Rows exact, Measure(transformer, options, text, Width::kFp16, false));
    for (PrefixQuality& result : results) {
      STRIA_ASSIGN_OR_RETURN(const Rows alone, Measure(transformer, options, text, result.width, false));
      STRIA_ASSIGN_OR_RETURN(const Rows shared, Measure(transformer, options, text, result.width, true));
      result.width_kl += MeanKl(exact, alone) * share;
      result.sharing_kl += MeanKl(alone, shared) * share;
      result.both_kl += MeanKl(exact, shared) * share;
    }
  }
  return results;
}

}  // namespace stria
