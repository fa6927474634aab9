// UTF-8, with the Unicode standard's rule for what is not UTF-8: each maximal ill-formed part counts as one U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stria {

struct Utf8Char {
  uint32_t code_point;  // kInvalidCodePoint where the bytes are no character
  int length;           // bytes, at least 1; of an ill-formed part as many as could have begun a character
  bool truncated;       // invalid only because the text ends here: more bytes could complete it
};

inline constexpr uint32_t kInvalidCodePoint = 0xFFFFFFFF;
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// The character at `text[at]`; requires at < text.size().
Utf8Char DecodeUtf8(std::string_view text, size_t at);

// `code_point` must be a Unicode scalar value.
void AppendUtf8(uint32_t code_point, std::string* out);

// `text` with U+FFFD in place of every ill-formed part.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace stria
