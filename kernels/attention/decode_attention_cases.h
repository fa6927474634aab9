// The case table of decode attention, for every way that computes it. A test binary links the table
// (decode_attention_cases.cc) and says which paths it has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/attention/decode_attention.h"

namespace stria {

// Outputs [sequences, heads, head_dim] for q of the same shape.
using DecodeFunction = std::function<std::vector<float>(const AttentionShape& shape, const std::vector<SequenceKv>& kv,
                                                        const std::vector<float>& q)>;

struct DecodePath {
  std::string name;
  DecodeFunction attend;
  std::vector<DecodeFunction> twins;  // the same work done otherwise, with the same bits
};

// Defined by each test binary. The first and the last also run what takes long. Never empty, except where there is no
// device to test: then every test is skipped before it asks.
const std::vector<DecodePath>& DecodePaths();

// Tokens of each sequence.
inline std::vector<int> TokensOf(const std::vector<SequenceKv>& kv) {
  std::vector<int> tokens;
  for (const SequenceKv& s : kv) tokens.push_back(s.sealed_pages * kPageTokens + s.tail);
  return tokens;
}

}  // namespace stria
