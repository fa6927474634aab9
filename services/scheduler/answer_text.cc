#include "services/scheduler/answer_text.h"

#include <utility>

#include "model/tokenizer/utf8.h"

namespace stria {

ScoredToken Scored(const Tokenizer& tokenizer, const TokenOut& token) {
  ScoredToken scored{.bytes = std::string(tokenizer.TokenBytes(token.token)), .logprob = token.logprob, .top = {}};
  scored.top.reserve(token.top.size());
  for (const TokenLogprob& other : token.top) {
    scored.top.emplace_back(std::string(tokenizer.TokenBytes(other.token)), other.logprob);
  }
  return scored;
}

void AnswerText::Add(const TokenOut& token) {
  if (stopped() || finished_) return;
  ++tokens_;
  if (end_tokens_ && tokenizer_.IsEnd(token.token)) return;
  const size_t begin = decoded_;
  std::string text = decoder_.Add(token.token);
  decoded_ += text.size();
  if (logprobs_) pending_.push_back({Scored(tokenizer_, token), begin, decoded_});
  Show(std::move(text));
}

void AnswerText::Finish() {
  if (stopped() || finished_) return;
  Show(decoder_.Flush());
  if (!stopped()) {
    std::string rest = matcher_.Flush();
    shown_ += rest.size();
    text_ += rest;
  }
  finished_ = true;
}

void AnswerText::Show(std::string text) {
  std::string shown = matcher_.Add(text);
  shown_ += shown.size();
  text_ += shown;
}

std::vector<ScoredToken> AnswerText::TakeScored(size_t* offset) {
  *offset = scored_characters_;
  std::vector<ScoredToken> taken;
  while (!pending_.empty()) {
    Pending& next = pending_.front();
    // After a stop string, tokens that gave the text nothing are not part of the answer.
    if (stopped() ? next.begin >= shown_ : !finished_ && next.end > shown_) break;
    scored_characters_ += CountCharacters(ReplaceInvalidUtf8(next.token.bytes));
    taken.push_back(std::move(next.token));
    pending_.pop_front();
  }
  return taken;
}

}  // namespace stria
