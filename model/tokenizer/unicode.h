// The properties of characters that tokenizers depend on, as Hugging Face `tokenizers` sees them
// (make_unicode_tables.py says how they were found).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stria {

enum class CharClass : uint8_t {
  kOther,      // also kInvalidCodePoint
  kLetter,     // \p{L}
  kNumber,     // \p{N}
  kSpace,      // \s
  kDigitOnly,  // numbers too new for the library's \p{N}, which its Digits splitter knows
};

CharClass ClassOf(uint32_t code_point);

// Unicode normalisation form C. Bytes that are not UTF-8 stay as they are; composition and reordering stop at them.
std::string Nfc(std::string_view text);

}  // namespace stria
