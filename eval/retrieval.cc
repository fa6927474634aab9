#include "eval/retrieval.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "worker/engine.h"
#include "worker/teacher_forcing.h"

namespace stria {
namespace {

constexpr char kNoise[] = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. ";

uint32_t Draw(uint64_t seed, uint64_t stream, uint64_t i, uint32_t below) {
  return static_cast<uint32_t>(Uniform(seed, stream, i) * below);
}

RetrievalPrompt Encode(const Tokenizer& tokenizer, const std::string& prompt, uint32_t answer) {
  return {tokenizer.Encode(prompt, {.add_bos = true}), tokenizer.Encode(absl::StrCat(" ", answer))};
}

}  // namespace

std::vector<RetrievalPrompt> NeedlePrompts(const Tokenizer& tokenizer, size_t count, size_t tokens, uint64_t seed) {
  const size_t noises = tokens / tokenizer.Encode(kNoise).size();
  std::vector<RetrievalPrompt> prompts;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t number = 10000 + Draw(seed, 0, i, 90000);
    const size_t place = Draw(seed, 1, i, static_cast<uint32_t>(noises * 3 / 4));  // not in what always stays
    std::string text;
    for (size_t n = 0; n < noises; ++n) {
      if (n == place) absl::StrAppend(&text, "The special magic number is ", number, ". ");
      text += kNoise;
    }
    prompts.push_back(Encode(tokenizer, text + "\nWhat is the special magic number? The special magic number is", number));
  }
  return prompts;
}

std::vector<RetrievalPrompt> KeyValuePrompts(const Tokenizer& tokenizer, size_t count, size_t tokens, uint64_t seed) {
  std::vector<RetrievalPrompt> prompts;
  for (size_t i = 0; i < count; ++i) {
    std::string text = "Here is a table of keys and their values.\n";
    const auto line = [&](uint64_t n) {
      return absl::StrCat("key ", 100 + Draw(seed, 2 + i, 2 * n, 900), ":");
    };
    const auto value = [&](uint64_t n) { return 1000 + Draw(seed, 2 + i, 2 * n + 1, 9000); };
    const size_t lines = tokens / tokenizer.Encode(absl::StrCat(line(0), " ", value(0), "\n")).size();
    // A key that occurs once, in the first three quarters.
    uint64_t asked = Draw(seed, 1, i, static_cast<uint32_t>(lines * 3 / 4));
    const auto repeated = [&] {
      for (uint64_t n = 0; n < lines; ++n)
        if (n != asked && line(n) == line(asked)) return true;
      return false;
    };
    while (repeated()) ++asked;
    for (uint64_t n = 0; n < lines; ++n) absl::StrAppend(&text, line(n), " ", value(n), "\n");
    prompts.push_back(Encode(tokenizer, absl::StrCat(text, "\nThe value of ", line(asked)), value(asked)));
  }
  return prompts;
}

absl::StatusOr<RetrievalScore> ScoreRetrieval(Transformer& transformer, int threads, std::span<const RetrievalPrompt> prompts,
                                              Width width, double keep) {
  EngineOptions options{.pool_bytes = uint64_t{512} << 20, .max_sequences = 16, .threads = threads};
  STRIA_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(transformer, options, SystemClock()));
  for (size_t i = 0; i < prompts.size(); ++i) {
    StartSequence start;
    start.name.id = i;
    start.prompt = prompts[i].prompt;
    start.forced = prompts[i].answer;
    start.sampling.top_logprobs = 1;
    start.plan = UniformPlan(transformer.config().layers, width, width);
    if (keep < 1) start.plan.keep_tokens = static_cast<uint32_t>(std::ceil(keep * static_cast<double>(start.prompt.size())));
    STRIA_RETURN_IF_ERROR(engine->Start(start));
  }
  RetrievalScore score;
  double tokens = 0, bytes = 0, fp16_bytes = 0;
  std::vector<bool> missed(prompts.size());
  while (engine->HasWork()) {
    for (const SequenceOutput& output : engine->Turn().outputs) {
      for (const TokenOut& token : output.tokens) {
        score.nll -= token.logprob;
        ++tokens;
        if (token.top.front().token != token.token) missed[output.name.id] = true;
      }
      if (output.finish == FinishReason::kError) return absl::InternalError(output.message);
      bytes += static_cast<double>(output.kv.bytes);
      if (output.finish != FinishReason::kNone) fp16_bytes += static_cast<double>(output.kv.fp16_bytes);
    }
  }
  for (const bool miss : missed) score.exact += !miss;
  score.nll /= tokens;
  score.exact /= static_cast<double>(prompts.size());
  score.ratio = fp16_bytes / bytes;
  return score;
}

}  // namespace stria
