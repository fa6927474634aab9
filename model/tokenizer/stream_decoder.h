// Turns a stream of tokens into text that never ends in half a character.
#pragma once

#include <cstdint>
#include <string>

#include "model/tokenizer/tokenizer.h"

namespace stria {

// One for each stream. The concatenation of all that Add and Flush return is ReplaceInvalidUtf8(Decode(all ids)).
class StreamDecoder {
 public:
  // `tokenizer` must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : tokenizer_(tokenizer), options_(options) {}

  // The text that is certain after one more token: valid UTF-8, perhaps empty while a character is incomplete. Bytes
  // that can't become a character are U+FFFD.
  std::string Add(int32_t id);

  // At the end of the stream: U+FFFD if a character was left incomplete, else nothing.
  std::string Flush();

 private:
  const Tokenizer& tokenizer_;
  const DecodeOptions options_;
  std::string pending_;  // the beginning of a character
};

}  // namespace stria
