// Which worker sealed the pages of which prompts lately, so that the next turn of a chat, or another prompt that begins alike, goes
// where they may be still. A guess that costs nothing when it is wrong: workers evict without saying so, and what a request shares
// is theirs to decide.
#pragma once

#include <cstddef>
#include <cstring>
#include <list>
#include <map>
#include <span>
#include <string>
#include <unordered_map>

#include "proto/prefix_chain.h"

namespace stria {

class PrefixAffinity {
 public:
  // Remembers so many pages of all workers together; the least recently used are forgotten first, chains from their ends.
  explicit PrefixAffinity(size_t most_pages = size_t{1} << 16) : most_pages_(most_pages) {}

  // The worker has, or will soon have, the pages of these keys, a chain from the first page on.
  void Remember(const std::string& worker, std::span<const PrefixKey> chain);
  // How many of the chain's pages, from the first on, the worker may have.
  size_t PagesOn(const std::string& worker, std::span<const PrefixKey> chain) const;
  // It is gone, and its pages with it.
  void Forget(const std::string& worker);

 private:
  struct KeyHash {
    size_t operator()(const PrefixKey& key) const {  // a digest's bits are as good as any hash of them
      size_t hash;
      std::memcpy(&hash, key.data(), sizeof hash);
      return hash;
    }
  };
  struct Page {
    std::string worker;
    PrefixKey key;
  };
  using Pages = std::list<Page>;  // the most recently used first

  const size_t most_pages_;
  Pages pages_;
  std::map<std::string, std::unordered_map<PrefixKey, Pages::iterator, KeyHash>> by_worker_;
};

}  // namespace stria
