// Finds whole-token literals in text: the leftmost, and of those the longest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace stria {

class LiteralMatcher {
 public:
  struct Match {
    size_t begin = std::string_view::npos;  // npos: no match
    size_t end = 0;
    int32_t id = -1;
  };

  // `literal` must not be empty.
  void Add(std::string_view literal, int32_t id);

  // The first match that begins at or after `from`.
  Match Find(std::string_view text, size_t from) const;

 private:
  struct Node {
    int32_t id = -1;
    absl::flat_hash_map<char, int32_t> next;
  };

  std::vector<Node> nodes_ = std::vector<Node>(1);  // a trie, root first
};

}  // namespace stria
