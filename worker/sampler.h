// From logits to a token, with the meaning that users of OpenAI's API and of vLLM expect:
//  1. reported log-probabilities are the model's own: log softmax of the logits before anything below touches
//  them;
//  2. logit_bias is added; the repetition penalty divides positive and multiplies negative logits of tokens
//  seen in prompt or
//     output; frequency · count and presence are subtracted for tokens of the output;
//  3. temperature 0 (or below 1e-5) takes the best token; otherwise logits are divided by it, and what stays
//  possible are
//     the tokens with at least min_p of the best one's probability, of them the top_k best, and of those the
//     fewest that hold top_p of the probability left;
//  4. the draw is keyed by (seed, choice, token index) alone: neighbours and earlier draws don't matter.
// Equal logits rank by id, lower first. NaN counts as impossible. Cost is linear in the vocabulary, but for
// the few candidates that get sorted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/sequences.h"

namespace stria {

// Reused between calls; one per thread.
struct SamplerScratch {
  std::vector<float> adjusted;
  std::vector<float> maxima;
  std::vector<double> sums;
  std::vector<std::pair<float, int32_t>> candidates;
};

class Sampler {
 public:
  // `prompt` as in StartSequence: its last `delivered` tokens count as output. Bias ids are in the
  // vocabulary.
  Sampler(const SamplingParams& params, std::span<const int32_t> prompt, uint32_t delivered);

  // Token number `index` of the sequence, drawn from logits [vocab]. Nothing: no token is possible.
  std::optional<TokenOut> Sample(std::span<const float> logits, uint32_t index, SamplerScratch& scratch);
  // A token that the caller decided, reported as Sample would.
  TokenOut Score(std::span<const float> logits, int32_t token, SamplerScratch& scratch) const;

 private:
  void Adjust(std::span<float> logits) const;
  int32_t Draw(std::span<const float> logits, float best, double uniform, SamplerScratch& scratch) const;

  struct Seen {
    uint32_t output = 0;  // times in the output
  };

  SamplingParams params_;
  bool penalties_;
  std::unordered_map<int32_t, Seen> seen_;  // tokens of prompt and output; kept only with penalties
};

// Index of the largest value, the lowest among equals. −1: all are NaN or −inf.
int32_t ArgMax(std::span<const float> values);

// log Σ exp(value), NaN ignored.
double LogSumExp(std::span<const float> values);

}  // namespace stria
