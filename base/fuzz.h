// What fuzz tests share: seeded mutations of kept inputs, so that a failure is repeated by running the test again. An input that once
// broke something joins the corpus.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace stria {

// `usual`, or what STRIA_FUZZ_ROUNDS says.
inline uint64_t FuzzRounds(uint64_t usual) {
  const char* asked = std::getenv("STRIA_FUZZ_ROUNDS");
  return asked != nullptr ? std::strtoull(asked, nullptr, 10) : usual;
}

class ByteMutator {
 public:
  // Most mutations fall within the first `head` bytes, where a file has its structure.
  ByteMutator(std::vector<std::string> corpus, uint64_t seed, size_t head = SIZE_MAX)
      : corpus_(std::move(corpus)), seed_(seed), head_(head) {
    STRIA_CHECK(!corpus_.empty());
  }

  // One of the corpus, or sometimes two spliced, with up to three changes.
  std::string Next() {
    std::string bytes = corpus_[Draw(corpus_.size())];
    for (uint64_t steps = 1 + Draw(3); steps > 0 && !bytes.empty(); --steps) Step(bytes);
    return bytes;
  }

  uint64_t Draw(uint64_t below) { return static_cast<uint64_t>(Uniform(seed_, 0, draws_++) * static_cast<double>(below)); }

 private:
  void Step(std::string& bytes) {
    const size_t at = Draw(Draw(8) == 0 ? bytes.size() : std::min(bytes.size(), head_));
    switch (Draw(7)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << Draw(8))); return;
      case 1: bytes[at] = static_cast<char>(Draw(256)); return;
      case 2: bytes.resize(at); return;
      case 3: {  // a number of interest over 1, 2, 4 or 8 bytes
        constexpr uint64_t kNumbers[] = {0, 1, 2, 31, 255, 0x7fffffff, 0xffffffff, uint64_t{1} << 32, uint64_t{1} << 60,
                                         uint64_t{1} << 61, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{31}};
        const uint64_t number = kNumbers[Draw(std::size(kNumbers))];
        std::memcpy(bytes.data() + at, &number, std::min<size_t>(size_t{1} << Draw(4), bytes.size() - at));
        return;
      }
      case 4: {  // a piece over another place
        const std::string piece = Piece();
        bytes.replace(at, std::min(piece.size(), bytes.size() - at), piece);
        return;
      }
      case 5: bytes.insert(at, Piece()); return;
      case 6: bytes.erase(at, Draw(64)); return;
    }
  }

  // Up to 64 bytes of any input.
  std::string Piece() {
    const std::string& other = corpus_[Draw(corpus_.size())];
    return other.substr(Draw(other.size() + 1), Draw(64));
  }

  const std::vector<std::string> corpus_;
  const uint64_t seed_;
  const size_t head_;
  uint64_t draws_ = 0;
};

}  // namespace stria
