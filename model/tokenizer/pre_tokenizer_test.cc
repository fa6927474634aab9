#include "model/tokenizer/pre_tokenizer.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/tokenizer/unicode.h"

namespace stria {
namespace {

using Words = std::vector<std::string>;

Words Split(PreTokenizer kind, std::string_view text) {
  Words words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = WordEnd(kind, text, at);
    EXPECT_GT(end, at);
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

// Worked out from the regular expressions in the header.
TEST(PreTokenizerTest, SplitsByTheRules) {
  const struct {
    std::string text;
    Words gpt2, smollm, llama3, qwen2;
  } kCases[] = {
      {"It's 12345!", {"It", "'s", " 12345", "!"}, {"It", "'s", " ", "1", "2", "3", "4", "5", "!"},
       {"It", "'s", " ", "123", "45", "!"}, {"It", "'s", " ", "1", "2", "3", "4", "5", "!"}},
      {"WE'LL 'x", {"WE", "'", "LL", " '", "x"}, {"WE", "'", "LL", " '", "x"}, {"WE", "'LL", " '", "x"}, {"WE", "'LL", " '", "x"}},
      {"a  b", {"a", " ", " b"}, {"a", " ", " b"}, {"a", " ", " b"}, {"a", " ", " b"}},
      {"a  1", {"a", " ", " 1"}, {"a", "  ", "1"}, {"a", " ", " ", "1"}, {"a", " ", " ", "1"}},
      {"a \n\n  b", {"a", " \n\n ", " b"}, {"a", " \n\n ", " b"}, {"a", " \n\n", " ", " b"}, {"a", " \n\n", " ", " b"}},
      {"a\tb\n", {"a", "\t", "b", "\n"}, {"a", "\t", "b", "\n"}, {"a", "\tb", "\n"}, {"a", "\tb", "\n"}},
      {"x();\r\n}", {"x", "();", "\r", "\n", "}"}, {"x", "();", "\r", "\n", "}"}, {"x", "();\r\n", "}"}, {"x", "();\r\n", "}"}},
      {"(a", {"(", "a"}, {"(", "a"}, {"(a"}, {"(a"}},
      {"  ", {"  "}, {"  "}, {"  "}, {"  "}},
      {"\u00A0\u4E2D\uFF11", {"\u00A0", "\u4E2D", "\uFF11"}, {"\u00A0", "\u4E2D", "\uFF11"}, {"\u00A0\u4E2D", "\uFF11"},
       {"\u00A0\u4E2D", "\uFF11"}},
      {"'\u017F", {"'", "\u017F"}, {"'", "\u017F"}, {"'\u017F"}, {"'\u017F"}},  // the long s folds to s
      {"a\xFF\xFE b", {"a", "\xFF\xFE", " b"}, {"a", "\xFF\xFE", " b"}, {"a", "\xFF\xFE", " b"}, {"a", "\xFF\xFE", " b"}},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(Split(PreTokenizer::kGpt2, c.text), c.gpt2);
    EXPECT_EQ(Split(PreTokenizer::kSmolLm, c.text), c.smollm);
    EXPECT_EQ(Split(PreTokenizer::kLlama3, c.text), c.llama3);
    EXPECT_EQ(Split(PreTokenizer::kQwen2, c.text), c.qwen2);
  }
}

TEST(PreTokenizerTest, NamesAreThoseOfGguf) {
  EXPECT_EQ(*ParsePreTokenizer("smollm"), PreTokenizer::kSmolLm);
  EXPECT_EQ(*ParsePreTokenizer("llama-bpe"), PreTokenizer::kLlama3);
  EXPECT_EQ(*ParsePreTokenizer("qwen2"), PreTokenizer::kQwen2);
  EXPECT_EQ(*ParsePreTokenizer("gpt-2"), PreTokenizer::kGpt2);
  const auto unknown = ParsePreTokenizer("chatglm-bpe");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(unknown.status().message().find("\"chatglm-bpe\""), absl::string_view::npos);
}

TEST(UnicodeTest, Classes) {
  EXPECT_EQ(ClassOf('a'), CharClass::kLetter);
  EXPECT_EQ(ClassOf(0x4E2D), CharClass::kLetter);
  EXPECT_EQ(ClassOf(0x0301), CharClass::kOther);
  EXPECT_EQ(ClassOf('7'), CharClass::kNumber);
  EXPECT_EQ(ClassOf(0x00BD), CharClass::kNumber);
  EXPECT_EQ(ClassOf(0x3000), CharClass::kSpace);
  EXPECT_EQ(ClassOf(0x1C), CharClass::kOther);  // a space to Python, not to \s
  EXPECT_EQ(ClassOf(0x10FFFF), CharClass::kOther);
  EXPECT_EQ(ClassOf(0xFFFFFFFF), CharClass::kOther);
}

// Examples of Unicode Standard Annex 15.
TEST(UnicodeTest, NormalisesToFormC) {
  const struct {
    const char *text, *expected;
  } kCases[] = {
      {"plain \u00E9", "plain \u00E9"},
      {"e\u0301", "\u00E9"},
      {"\u212B", "\u00C5"},                            // a singleton
      {"D\u0307\u0323", "\u1E0C\u0307"},               // sorted, then composed with what comes first
      {"\u1E0A\u0323", "\u1E0C\u0307"},
      {"a\u0301\u0300", "\u00E1\u0300"},               // the second mark finds no composite
      {"\u0958", "\u0915\u093C"},                      // excluded from composition
      {"\u1100\u1161\u11A8", "\uAC01"},                // Hangul
      {"\uAC00\u11A8", "\uAC01"},
      {"\u0301e", "\u0301e"},                          // a mark with nothing before it
      {"e\xFF\u0301", "e\xFF\u0301"},                  // not across bytes that are not UTF-8
      {"a\u0345\u0301", "\u00E1\u0345"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(Nfc(c.text), c.expected);
    EXPECT_EQ(Nfc(c.expected), c.expected);
  }
}

}  // namespace
}  // namespace stria
