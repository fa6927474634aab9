// Byte-level byte-pair encoding of single words (Sennrich et al. 2016; the byte level is GPT-2's).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace stria {

// The bytes that a token or merge in GPT-2's printable alphabet stands for (U+0100 is byte 0, "Ġ" a space ...), or an
// error where a character lies outside the alphabet.
absl::StatusOr<std::string> BytesFromPrintable(std::string_view printable);

class Bpe {
 public:
  // `tokens` by id, as bytes; empty entries are no part of the vocabulary. `merges` are "left right" in the printable
  // alphabet, best first. With `whole_words`, a word that is a token is that token, merges or not (Llama 3).
  static absl::StatusOr<Bpe> Create(const std::vector<std::string>& tokens, const std::vector<std::string>& merges,
                                    bool whole_words);

  // Appends the ids of `word`: again and again the adjacent pair with the best merge, the leftmost of equals.
  // A byte that the vocabulary lacks has no id and is left out. O(n log n) for n bytes.
  void Encode(std::string_view word, std::vector<int32_t>* ids) const;

 private:
  struct Merge {
    int32_t rank;
    int32_t id;  // of the merged token
  };

  const Merge* FindMerge(int32_t left, int32_t right) const;
  void EncodeShort(std::vector<int32_t>* ids, size_t begin) const;
  void EncodeLong(std::vector<int32_t>* ids, size_t begin) const;

  bool whole_words_ = false;
  std::array<int32_t, 256> byte_ids_;  // -1: not in the vocabulary
  absl::flat_hash_map<std::string, int32_t> ids_;
  absl::flat_hash_map<uint64_t, Merge> merges_;  // key: left id, right id
};

}  // namespace stria
