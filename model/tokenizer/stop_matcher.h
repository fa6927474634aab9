// Ends a stream of text at the first of several stop strings, wherever the pieces are cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace stria {

// One for each stream. The match is the one that is complete first; of several that are complete at the same
// character, the longest. So the result does not depend on how the text is cut into pieces. (Aho and Corasick 1975.)
class StopMatcher {
 public:
  // An empty stop string is an error. No stops at all: everything passes.
  static absl::StatusOr<StopMatcher> Create(const std::vector<std::string>& stops);

  // Takes the next piece of the stream and returns what can be shown: text that can no longer be part of a stop. After
  // a match, the text before the stop and then nothing more. Whole characters, if stops and pieces are.
  std::string Add(std::string_view piece);

  // At the end of the stream: what was held back as the possible beginning of a stop.
  std::string Flush();

  bool stopped() const { return matched_ >= 0; }
  int matched() const { return matched_; }  // index in `stops`, -1 before a match

 private:
  struct Node {
    absl::flat_hash_map<char, int> next;
    int fail = 0;   // the longest proper suffix that begins a stop too
    int depth = 0;  // bytes from the root: how much is to be held back
    int stop = -1;  // index of the longest stop that ends here
    int stop_length = 0;
  };

  StopMatcher() : nodes_(1) {}
  int Step(int node, char c) const;

  std::vector<Node> nodes_;  // root first
  int node_ = 0;
  std::string held_;  // exactly nodes_[node_].depth bytes
  int matched_ = -1;
};

}  // namespace stria
