// Names of a sequence's full pages, under which equal prefixes find each other's: a SHA-256 chain, so that a
// page's key stands for all tokens up to its end and for everything else that decides what its bytes are,
// widths aside. The worker finds pages by them, the scheduler the worker that has them.
//
//   root   = H("stria prefix 1", model fingerprint, layers that are not plain, tenant salt)
//   key[p] = H(key[p − 1], the 64 token ids of page p)         key[−1] = root
//
// Every field of the root is preceded by its length, so no two different lists of fields read the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "proto/sequences.h"

namespace stria {

using PrefixKey = Sha256Digest;
inline constexpr size_t kPrefixPageTokens = 64;

class PrefixChain {
 public:
  PrefixChain(std::string_view fingerprint, const CachePlan& plan, std::string_view salt);

  // The sequence's next tokens.
  void Append(std::span<const int32_t> tokens);
  // Of the pages that the tokens so far fill.
  const std::vector<PrefixKey>& keys() const { return keys_; }

 private:
  PrefixKey last_;
  std::vector<PrefixKey> keys_;
  std::vector<int32_t> open_;  // tokens behind the last full page
};

}  // namespace stria
