#include "scheduler/token_ledger.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace stria {

TokenLedger::Accepted TokenLedger::Accept(SequenceOutput output) {
  Accepted accepted;
  const uint64_t end = uint64_t{output.first_index} + output.tokens.size();
  if (output.first_index > size()) {
    accepted.gap = true;
    return accepted;
  }
  if (end > size()) {
    const auto first_new = output.tokens.begin() + (size() - output.first_index);
    accepted.tokens.assign(std::make_move_iterator(first_new), std::make_move_iterator(output.tokens.end()));
    for (const TokenOut& token : accepted.tokens) tokens_.push_back(token.token);
  }
  // An end that stands before tokens already here belongs to an older message of a restarted attempt: not this one's.
  accepted.finished = output.finish != FinishReason::kNone && end >= size();
  return accepted;
}

}  // namespace stria
