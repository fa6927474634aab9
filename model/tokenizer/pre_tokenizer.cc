#include "model/tokenizer/pre_tokenizer.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "model/tokenizer/unicode.h"
#include "model/tokenizer/utf8.h"

namespace stria {
namespace {

// One character seen by a scanner; length 0 at the end of the text.
struct Char {
  uint32_t code_point = 0;
  CharClass cls = CharClass::kSpace;  // at the end \s+(?!\S) holds, as before a space
  int length = 0;

  bool is(CharClass c) const { return length > 0 && cls == c; }
  bool is_letter() const { return is(CharClass::kLetter); }
  bool is_number() const { return is(CharClass::kNumber); }
  bool is_space() const { return is(CharClass::kSpace); }
  bool is_newline() const { return length > 0 && (code_point == '\r' || code_point == '\n'); }
  bool is_other() const { return is(CharClass::kOther) || is(CharClass::kDigitOnly); }
  bool is_digit() const { return is_number() || is(CharClass::kDigitOnly); }
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Char At(size_t i) const {
    if (i >= text_.size()) return {};
    const Utf8Char c = DecodeUtf8(text_, i);
    return {c.code_point, ClassOf(c.code_point), c.length};
  }

  // The end of the longest run from `i` whose characters satisfy `member`.
  template <typename Predicate>
  size_t Run(size_t i, Predicate member) const {
    for (Char c = At(i); member(c); c = At(i)) i += c.length;
    return i;
  }

  // The end of 's 't 're 've 'm 'll 'd at `i`, or 0.
  size_t Contraction(size_t i, bool ignore_case) const {
    if (text_[i] != '\'') return 0;
    const auto letter = [&](size_t at) {
      if (at >= text_.size()) return '\0';
      const char c = text_[at];
      return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    const char a = letter(i + 1), b = letter(i + 2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
    // Case folding takes the long s for an s.
    if (ignore_case && text_.substr(i + 1, 2) == "\xC5\xBF") return i + 3;
    return 0;
  }

  // \s+(?!\S)|\s+ at `i`, a space: the whole run at the end of the text, else all but its last character, but at
  // least one. `ends` says whether the character after the run counts as the end of the text.
  template <typename Predicate>
  size_t Spaces(size_t i, Predicate ends) const {
    size_t end = i, last = i;
    Char c = At(i);
    while (c.is_space()) {
      last = end;
      end += c.length;
      c = At(end);
    }
    return last == i || c.length == 0 || ends(c) ? end : last;
  }

 private:
  std::string_view text_;
};

// ` ?` before a run: where the run would begin.
size_t SkipBlank(const Char& first, size_t begin) { return first.code_point == ' ' ? begin + 1 : begin; }

size_t Gpt2WordEnd(const Scanner& text, size_t begin, bool digits_alone) {
  if (const size_t end = text.Contraction(begin, /*ignore_case=*/false)) return end;
  const auto isolated = [&](const Char& c) { return digits_alone && c.is_digit(); };
  const Char first = text.At(begin);
  if (isolated(first)) return begin + first.length;

  const size_t run = SkipBlank(first, begin);
  const Char c = text.At(run);
  if (c.is_letter()) return text.Run(run, [](const Char& x) { return x.is_letter(); });
  if (!isolated(c)) {
    if (c.is_number()) return text.Run(run, [](const Char& x) { return x.is_number(); });
    if (c.is_other()) return text.Run(run, [&](const Char& x) { return x.is_other() && !isolated(x); });
  }
  return text.Spaces(begin, isolated);
}

size_t Llama3WordEnd(const Scanner& text, size_t begin, int digits) {
  if (const size_t end = text.Contraction(begin, /*ignore_case=*/true)) return end;
  const Char first = text.At(begin);
  const auto letter = [](const Char& x) { return x.is_letter(); };
  if (first.is_letter()) return text.Run(begin, letter);
  if (first.is_number()) {
    return text.Run(begin, [&](const Char& x) { return x.is_number() && digits-- > 0; });
  }
  if (!first.is_newline() && text.At(begin + first.length).is_letter()) {
    return text.Run(begin + first.length, letter);
  }

  const size_t run = SkipBlank(first, begin);
  if (text.At(run).is_other()) {
    const size_t end = text.Run(run, [](const Char& x) { return x.is_other(); });
    return text.Run(end, [](const Char& x) { return x.is_newline(); });
  }

  // \s*[\r\n]+: up to the last newline among the spaces.
  size_t newline_end = 0;
  size_t i = begin;
  for (Char c = first; c.is_space(); c = text.At(i)) {
    i += c.length;
    if (c.is_newline()) newline_end = i;
  }
  return newline_end != 0 ? newline_end : text.Spaces(begin, [](const Char&) { return false; });
}

}  // namespace

absl::StatusOr<PreTokenizer> ParsePreTokenizer(std::string_view name) {
  if (name == "gpt-2") return PreTokenizer::kGpt2;
  if (name == "smollm") return PreTokenizer::kSmolLm;
  if (name == "llama-bpe" || name == "llama3" || name == "llama-v3") return PreTokenizer::kLlama3;
  if (name == "qwen2") return PreTokenizer::kQwen2;
  return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.pre: the pre-tokenizer \"", std::string(name),
                                               "\" is not supported (only gpt-2, smollm, llama-bpe, qwen2)"));
}

size_t WordEnd(PreTokenizer kind, std::string_view text, size_t begin) {
  const Scanner scanner(text);
  switch (kind) {
    case PreTokenizer::kGpt2: return Gpt2WordEnd(scanner, begin, /*digits_alone=*/false);
    case PreTokenizer::kSmolLm: return Gpt2WordEnd(scanner, begin, /*digits_alone=*/true);
    case PreTokenizer::kLlama3: return Llama3WordEnd(scanner, begin, 3);
    case PreTokenizer::kQwen2: return Llama3WordEnd(scanner, begin, 1);
  }
  return text.size();
}

}  // namespace stria
