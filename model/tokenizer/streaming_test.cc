#include <memory>

#include "base/random.h"
#include "gtest/gtest.h"
#include "model/tokenizer/stop_matcher.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/tiny_vocabulary.h"
#include "model/tokenizer/utf8.h"

namespace stria {
namespace {

uint32_t RandomBits(uint64_t seed, uint64_t stream, uint64_t counter) { return Philox(seed, stream, counter)[0]; }

TEST(Utf8Test, ReplacesMaximalIllFormedParts) {
  const struct {
    const char *text, *expected;
  } kCases[] = {
      {"a\u00E9\u4E2D\U0001F642", "a\u00E9\u4E2D\U0001F642"},
      {"\xF0\x9F\x99x", "\uFFFDx"},                              // three bytes of four
      {"\xE2(\xA1", "\uFFFD(\uFFFD"},                            // a byte that does not continue
      {"\xC0\x80", "\uFFFD\uFFFD"},                              // overlong
      {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},                    // overlong
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},                    // a surrogate
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},          // above U+10FFFF
      {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64",   // The Unicode Standard, table 3-8
       "a\uFFFD\uFFFD\uFFFD"
       "b\uFFFD"
       "c\uFFFD\uFFFD"
       "d"},
  };
  for (const auto& c : kCases) EXPECT_EQ(ReplaceInvalidUtf8(c.text), c.expected);
}

std::unique_ptr<Tokenizer> Tiny() { return *Tokenizer::Create(TinySpec()); }

TEST(StreamDecoderTest, ShowsWholeCharactersAsSoonAsTheyAreThere) {
  const auto tokenizer = Tiny();
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.Add('a'), "a");
  EXPECT_EQ(stream.Add(0xF0), "");
  EXPECT_EQ(stream.Add(0x9F), "");
  EXPECT_EQ(stream.Add(0x99), "");
  EXPECT_EQ(stream.Add(0x82), "\U0001F642");
  EXPECT_EQ(stream.Add(0xC3), "");
  EXPECT_EQ(stream.Add(kTinyEnd), "");  // control: skipped, though in the middle of a character
  EXPECT_EQ(stream.Add('x'), "\uFFFDx");
  EXPECT_EQ(stream.Add(kTinySpaceHello), " hello");
  EXPECT_EQ(stream.Add(0xE4), "");
  EXPECT_EQ(stream.Add(0xB8), "");
  EXPECT_EQ(stream.Flush(), "\uFFFD");
  EXPECT_EQ(stream.Flush(), "");
}

TEST(StreamDecoderTest, AnyBytesAreTheSameStreamedAndAtOnce) {
  const auto tokenizer = Tiny();
  const uint8_t kLikely[] = {0xC3, 0xA9, 0xE4, 0xB8, 0xAD, 0xF0, 0x9F, 0x99, 0x82, 0xED, 0xA0, 'a', 0xFF};
  for (uint64_t round = 0; round < 3000; ++round) {
    std::vector<int32_t> ids;
    for (uint64_t i = 0; i < RandomBits(3, round, 0) % 16; ++i) ids.push_back(kLikely[RandomBits(4, round, i) % std::size(kLikely)]);
    StreamDecoder stream(*tokenizer);
    std::string text;
    for (const int32_t id : ids) {
      const std::string piece = stream.Add(id);
      EXPECT_EQ(piece, ReplaceInvalidUtf8(piece));  // valid by itself
      text += piece;
    }
    EXPECT_EQ(text + stream.Flush(), ReplaceInvalidUtf8(tokenizer->Decode(ids)));
  }
}

StopMatcher Stops(const std::vector<std::string>& stops) { return *StopMatcher::Create(stops); }

TEST(StopMatcherTest, HoldsBackOnlyWhatMayBeginAStop) {
  StopMatcher m = Stops({"\n\nUser:", "END"});
  EXPECT_EQ(m.Add("Hello\n"), "Hello");
  EXPECT_EQ(m.Add("world\n\nUs"), "\nworld");
  EXPECT_EQ(m.Add("ual\n\nEN"), "\n\nUsual\n\n");
  EXPECT_EQ(m.Add("Dx"), "");
  EXPECT_TRUE(m.stopped());
  EXPECT_EQ(m.matched(), 1);
  EXPECT_EQ(m.Add("more"), "");
  EXPECT_EQ(m.Flush(), "");
}

TEST(StopMatcherTest, ReleasesWhatItHeldAtTheEnd) {
  StopMatcher m = Stops({"abc"});
  EXPECT_EQ(m.Add("xab"), "x");
  EXPECT_EQ(m.Flush(), "ab");
  EXPECT_FALSE(m.stopped());
}

TEST(StopMatcherTest, NeverCutsACharacter) {
  StopMatcher m = Stops({"\u00E9!"});  // C3 A9
  EXPECT_EQ(m.Add("\u00E8"), "\u00E8");  // C3 A8
  EXPECT_EQ(m.Add("\u00E9"), "");
  EXPECT_EQ(m.Add("?"), "\u00E9?");
}

TEST(StopMatcherTest, NoStopsAndEmptyStops) {
  StopMatcher m = Stops({});
  EXPECT_EQ(m.Add("abc"), "abc");
  EXPECT_EQ(StopMatcher::Create({"a", ""}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(StopMatcherTest, ManyLongStops) {
  std::vector<std::string> stops;
  for (int i = 0; i < 2000; ++i) stops.push_back(std::string(50, 'a') + std::to_string(i) + ";");
  StopMatcher m = Stops(stops);
  EXPECT_EQ(m.Add(std::string(100'000, 'a')), std::string(100'000 - 50, 'a'));
  EXPECT_EQ(m.Add("1234;"), "");
  EXPECT_EQ(m.matched(), 1234);
}

// Against the definition: the first end of any stop, of those the longest; held back is the longest end of the text
// that begins a stop.
TEST(StopMatcherTest, RandomTextsAndCuts) {
  const auto word = [](uint64_t seed, uint64_t round, uint64_t n) {
    std::string s;
    for (uint64_t i = 0; i < n; ++i) s += static_cast<char>('a' + RandomBits(seed, round, i) % 3);
    return s;
  };
  for (uint64_t round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (uint64_t i = 0; i < 1 + RandomBits(5, round, 0) % 4; ++i) stops.push_back(word(6 + i, round, 1 + RandomBits(11, round, i) % 5));
    const std::string text = word(12, round, 30);

    std::string expected = text;
    bool stops_here = false;
    for (size_t end = 1; end <= text.size() && !stops_here; ++end) {
      for (const std::string& stop : stops) {
        if (!std::string_view(text).substr(0, end).ends_with(stop)) continue;
        stops_here = true;
        expected = text.substr(0, std::min(expected.size(), end - stop.size()));
      }
    }

    StopMatcher m = Stops(stops);
    std::string shown;
    for (size_t at = 0, i = 0; at < text.size() && !m.stopped(); ++i) {
      const size_t n = std::min<size_t>(RandomBits(13, round, i) % 6, text.size() - at);
      shown += m.Add(std::string_view(text).substr(at, n));
      at += n;
      if (m.stopped()) break;
      size_t held = 0;
      for (size_t k = 1; k <= at; ++k) {
        for (const std::string& stop : stops) {
          if (stop.starts_with(std::string_view(text).substr(at - k, k))) held = k;
        }
      }
      EXPECT_EQ(shown.size(), at - held) << "round " << round;
    }
    EXPECT_EQ(m.stopped(), stops_here) << "round " << round;
    EXPECT_EQ(shown + m.Flush(), expected) << "round " << round;
  }
}

}  // namespace
}  // namespace stria
