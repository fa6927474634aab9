// One sequence's tokens becoming one answer's text: whole characters only, ended by stop strings, with the log-probabilities of the
// tokens that the text is made of.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "model/tokenizer/stop_matcher.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tokenizer.h"
#include "proto/sequences.h"
#include "services/scheduler/api_reply.h"

namespace stria {

ScoredToken Scored(const Tokenizer& tokenizer, const TokenOut& token);

class AnswerText {
 public:
  // `tokenizer` outlives this. `end_tokens`: whether end-of-answer tokens end it (they are counted, never shown).
  AnswerText(const Tokenizer& tokenizer, StopMatcher matcher, bool end_tokens, bool logprobs)
      : tokenizer_(tokenizer), decoder_(tokenizer), matcher_(std::move(matcher)), end_tokens_(end_tokens), logprobs_(logprobs) {}

  // The next token; after a stop string nothing counts any more.
  void Add(const TokenOut& token);
  // No more tokens come: what was held back as half a character or half a stop string is text after all.
  void Finish();

  bool stopped() const { return matcher_.stopped(); }  // a stop string ended it
  uint32_t tokens() const { return tokens_; }          // counted so far, those that ended it included

  // What can be shown since the last call.
  std::string TakeText() { return std::exchange(text_, {}); }
  // Log-probabilities of tokens since the last call whose text can be shown. *offset: characters of all before them.
  std::vector<ScoredToken> TakeScored(size_t* offset);

 private:
  void Show(std::string text);

  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;
  StopMatcher matcher_;
  bool end_tokens_, logprobs_;
  uint32_t tokens_ = 0;
  std::string text_;
  size_t decoded_ = 0, shown_ = 0;  // bytes of text that came out of the decoder, and out of the matcher

  struct Pending {
    ScoredToken token;
    size_t begin, end;  // in decoded bytes
  };
  std::deque<Pending> pending_;
  bool finished_ = false;
  size_t scored_characters_ = 0;
};

}  // namespace stria
