// What has arrived of one sequence, by token index: duplicates are dropped, a gap waits for the worker to send again, the end
// counts once. Over all attempts, since token indices go on across them.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/sequences.h"

namespace stria {

class TokenLedger {
 public:
  struct Accepted {
    std::vector<TokenOut> tokens;  // new ones, in order
    bool gap = false;              // something before this output is missing: nothing of it was taken
    bool finished = false;         // the end, with everything before it here
  };

  // Takes what is new of one output.
  Accepted Accept(SequenceOutput output);

  // Tokens of all attempts so far, from index 0.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }

 private:
  std::vector<int32_t> tokens_;
};

}  // namespace stria
