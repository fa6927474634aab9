// Retrieval: does the model still find what stood early in a long prompt, under a cache that evicts or quantises? Synthetic
// prompts with one right answer, teacher-forced, so that an answer has a likelihood even where it is missed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/tokenizer.h"
#include "model/transformer/transformer.h"
#include "proto/cache_plan.h"

namespace stria {

struct RetrievalPrompt {
  std::vector<int32_t> prompt, answer;
};

// A number hidden at a drawn place in repeated noise, asked for at the end. About `tokens` tokens each.
std::vector<RetrievalPrompt> NeedlePrompts(const Tokenizer& tokenizer, size_t count, size_t tokens, uint64_t seed);

// Lines "key: number", one of which is asked for at the end.
std::vector<RetrievalPrompt> KeyValuePrompts(const Tokenizer& tokenizer, size_t count, size_t tokens, uint64_t seed);

struct RetrievalScore {
  double nll = 0;    // of the answers, mean over tokens, nats
  double exact = 0;  // share of prompts whose every answer token was the likeliest: what greedy decoding says
  double ratio = 0;  // whole context at FP16 over bytes held
};

// `keep`: share of each prompt. Runs through the engine: prefill, eviction, decode.
absl::StatusOr<RetrievalScore> ScoreRetrieval(Transformer& transformer, int threads, std::span<const RetrievalPrompt> prompts,
                                              Width width, double keep);

}  // namespace stria
