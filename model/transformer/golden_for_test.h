// A transformer side by side with golden data: greedy runs of another engine, a reference's distributions.
// Tests only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/testdata/logits_file.h"
#include "model/transformer/transformer.h"

namespace stria {

struct GreedyRun {
  std::vector<int32_t> prompt, tokens;
  std::vector<double> gaps;  // between the two best logits, at each token
};

// A file that model/testdata/make_greedy_golden.py describes. Aborts when it is missing or malformed.
std::vector<GreedyRun> ReadGreedyRuns(const std::string& path);

// Decodes all runs in one batch, prompts first, and returns how many give the same tokens. A run that first
// differs where the recorded gap is `near_tie` or more is a test failure.
int CountEqual(Transformer& transformer, const std::vector<GreedyRun>& runs, double near_tie);

struct GoldenScore {
  int tokens = 0;
  double kl = 0;         // mean over tokens, nats, as GoldenKl
  double agreement = 0;  // share of tokens whose likeliest successor is the golden one
};

// Teacher-forces all contexts side by side, a token of each at a time, over an FP16 cache; all rows in the arithmetic of
// one role.
GoldenScore ScoreThroughDecodeSteps(Transformer& transformer, const GoldenLogits& golden,
                                    RowRole arithmetic = RowRole::kDecode);

}  // namespace stria
