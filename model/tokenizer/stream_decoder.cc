#include "model/tokenizer/stream_decoder.h"

#include <utility>

#include "model/tokenizer/utf8.h"

namespace stria {

std::string StreamDecoder::Add(int32_t id) {
  if (options_.skip_special && tokenizer_.IsControl(id)) return "";
  pending_ += tokenizer_.TokenBytes(id);
  size_t complete = 0;
  while (complete < pending_.size()) {
    const Utf8Char c = DecodeUtf8(pending_, complete);
    if (c.truncated) break;
    complete += c.length;
  }
  std::string text = ReplaceInvalidUtf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string StreamDecoder::Flush() { return ReplaceInvalidUtf8(std::exchange(pending_, "")); }

}  // namespace stria
