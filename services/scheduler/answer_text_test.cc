#include "services/scheduler/answer_text.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "model/tokenizer/utf8.h"
#include "services/scheduler/test_tokenizer.h"

namespace stria {
namespace {

class AnswerTextTest : public testing::Test {
 protected:
  AnswerText Make(std::vector<std::string> stops, bool end_tokens = true, bool logprobs = false) {
    return AnswerText(*tokenizer_, *StopMatcher::Create(stops), end_tokens, logprobs);
  }
  static void AddBytes(AnswerText& text, std::string_view bytes) {
    for (const char byte : bytes) Add(text, static_cast<unsigned char>(byte));
  }
  static void Add(AnswerText& text, int32_t id) {
    TokenOut token;
    token.token = id;
    token.logprob = -1;
    text.Add(token);
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = TestTokenizer();
};

TEST_F(AnswerTextTest, WholeCharactersOnly) {
  AnswerText text = Make({});
  AddBytes(text, "a\xf0\x9f\x98");
  EXPECT_EQ(text.TakeText(), "a");
  AddBytes(text, "\x80!");
  EXPECT_EQ(text.TakeText(), "😀!");
  AddBytes(text, "\xc3");
  text.Finish();
  EXPECT_EQ(text.TakeText(), "\xEF\xBF\xBD") << "half a character at the end is shown as U+FFFD";
  EXPECT_EQ(text.tokens(), 7u);
}

TEST_F(AnswerTextTest, AStopAcrossTokens) {
  AnswerText text = Make({"END", "###"});
  AddBytes(text, "one EN");
  EXPECT_EQ(text.TakeText(), "one ") << "what may begin a stop is held back";
  AddBytes(text, "T #");
  EXPECT_EQ(text.TakeText(), "ENT ");
  AddBytes(text, "##");
  EXPECT_TRUE(text.stopped());
  AddBytes(text, "after");
  text.Finish();
  EXPECT_EQ(text.TakeText(), "") << "nothing of the stop, nothing after it";
  EXPECT_EQ(text.tokens(), 11u) << "up to the token that completed the stop";
}

TEST_F(AnswerTextTest, HalfAStopIsTextAtTheEnd) {
  AnswerText text = Make({"END"});
  AddBytes(text, "x EN");
  text.Finish();
  EXPECT_EQ(text.TakeText(), "x EN");
  EXPECT_FALSE(text.stopped());
}

TEST_F(AnswerTextTest, EndTokensAreCountedAndNotShown) {
  AnswerText text = Make({}, true, true);
  Add(text, kTestHello);
  Add(text, kTestEnd);
  text.Finish();
  EXPECT_EQ(text.TakeText(), "hello");
  EXPECT_EQ(text.tokens(), 2u);
  size_t offset;
  EXPECT_EQ(text.TakeScored(&offset).size(), 1u);
}

TEST_F(AnswerTextTest, LogprobsComeWithTheirTextAndEndWithIt) {
  AnswerText text = Make({"lowo"}, true, true);
  size_t offset = 99;
  AddBytes(text, "x");
  EXPECT_EQ(text.TakeScored(&offset).size(), 1u);
  EXPECT_EQ(offset, 0u);
  Add(text, kTestHello);  // "hel" can be shown, "lo" may begin the stop
  EXPECT_EQ(text.TakeText(), "xhel");
  EXPECT_EQ(text.TakeScored(&offset).size(), 0u) << "a token is shown when its last character is";
  AddBytes(text, " ");
  EXPECT_EQ(text.TakeText(), "lo ");
  const auto scored = text.TakeScored(&offset);
  ASSERT_EQ(scored.size(), 2u);
  EXPECT_EQ(scored[0].bytes, "hello");
  EXPECT_EQ(offset, 1u);
  Add(text, kTestHello);
  Add(text, kTestWorld);  // "hel" + "lowo" + "rld"
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.TakeText(), "hel");
  EXPECT_EQ(text.TakeScored(&offset).size(), 1u) << "hello gave the text something, world did not";
  EXPECT_EQ(offset, 7u);
}

// However the tokens are cut, the text is what the whole gives.
TEST_F(AnswerTextTest, TakenInPiecesOrAtOnce) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::string bytes;
    for (uint64_t i = 0; i < 40; ++i) {
      constexpr std::string_view kPieces[] = {"a", "b", "ab", "é", "😀", "\xff", "\xc3", "ba"};
      bytes += kPieces[static_cast<size_t>(Uniform(seed, 1, i) * 8)];
    }
    const std::vector<std::string> stops = {"abab", "éb", "bb😀"};
    const std::string whole = ReplaceInvalidUtf8(bytes);
    // The stop that is complete first; the text before it.
    size_t end = std::string::npos, begin = whole.size();
    for (const std::string& stop : stops) {
      const size_t at = whole.find(stop);
      if (at == std::string::npos) continue;
      if (at + stop.size() < end) end = at + stop.size(), begin = at;
    }
    AnswerText text = Make(stops);
    std::string got;
    for (const char byte : bytes) {
      Add(text, static_cast<unsigned char>(byte));
      if (Uniform(seed, 2, got.size()) < 0.5) got += text.TakeText();
    }
    text.Finish();
    got += text.TakeText();
    EXPECT_EQ(got, whole.substr(0, begin)) << seed;
    EXPECT_EQ(text.stopped(), end != std::string::npos);
  }
}

}  // namespace
}  // namespace stria
