// Reads the golden next-token distributions that the scripts in this folder make (format: logits_file.py),
// for tests.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stria {

inline constexpr int kGoldenBuckets = 32;

// The distribution after one token: the likeliest tokens alone, by falling probability, all others as 32 sums
// by id modulo 32.
struct GoldenPosition {
  std::vector<int> tokens;
  std::vector<double> probabilities;             // of `tokens`; with `rest` they add up to 1
  std::array<double, kGoldenBuckets> rest = {};  // 0: empty
};

struct GoldenContext {
  std::vector<int32_t> tokens;            // an independent context from its first position on
  std::vector<GoldenPosition> positions;  // positions[i]: the distribution after reading tokens[0..i]
};

struct GoldenLogits {
  int vocab = 0;
  std::vector<GoldenContext> contexts;
};

// Aborts, with the path, when the file is missing or malformed: it is part of the test.
GoldenLogits ReadGoldenLogits(const std::string& path);

// KL(golden ‖ softmax(logits)) in nats over the golden classes; logits [vocab]. A lower bound of the KL over
// all tokens, about 5 % below it for the SmolLM2 file.
double GoldenKl(const GoldenPosition& golden, std::span<const float> logits);

}  // namespace stria
