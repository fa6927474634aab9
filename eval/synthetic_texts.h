// Retrieval prompts made by a seeded generator: facts to look up among noise, and tables of keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stria {

// `count` texts of at least `bytes` bytes; text i depends on (seed, i) alone. Even ones hide needles in repeated sentences and ask
// for them, odd ones list key-value pairs and ask for some of them; questions are answered.
std::vector<std::string> MakeRetrievalTexts(size_t count, size_t bytes, uint64_t seed);

}  // namespace stria
