// Equal to Hugging Face `tokenizers` on some 11,000 strings (testdata/make_golden.py) over the real vocabularies.
#include <cstdio>
#include <sstream>

#include "gtest/gtest.h"
#include "model/tokenizer/golden_test_util.h"
#include "model/tokenizer/stream_decoder.h"
#include "model/tokenizer/unicode.h"
#include "model/tokenizer/utf8.h"
#include "nlohmann/json.hpp"

namespace stria {
namespace {

std::string Digest(const std::vector<int32_t>& ids) {
  uint64_t h = 0xCBF29CE484222325;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) h = (h ^ ((id >> shift) & 0xFF)) * 0x100000001B3;
  }
  char text[64];
  std::snprintf(text, sizeof(text), "%zu %08x", ids.size(), static_cast<unsigned>(h >> 32));
  return text;
}

std::string Join(const std::vector<int32_t>& ids) {
  std::ostringstream out;
  for (const int32_t id : ids) out << (out.tellp() > 0 ? " " : "") << id;
  return out.str();
}

// The bytes that the vocabulary has tokens for.
std::vector<bool> KnownBytes(const Tokenizer& tokenizer) {
  std::vector<bool> known(256);
  for (int id = 0; id < tokenizer.vocab_size(); ++id) {
    if (const auto bytes = tokenizer.TokenBytes(id); bytes.size() == 1) known[static_cast<uint8_t>(bytes[0])] = true;
  }
  return known;
}

class TokenizerGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGoldenTest, EncodesAsHuggingFaceDoesAndDecodesExactly) {
  const auto tokenizer = LoadTokenizer(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const auto strings = ReadLines("strings.jsonl"), golden = ReadLines(GetParam() + std::string(".ids"));
  ASSERT_GT(strings.size(), 10000u);
  ASSERT_EQ(strings.size(), golden.size());
  const bool nfc = GetParam() == std::string("qwen2");
  const std::vector<bool> known = KnownBytes(*tokenizer);

  int wrong = 0;
  size_t exact = 0;
  for (size_t i = 0; i < strings.size(); ++i) {
    const std::string text = nlohmann::json::parse(strings[i]).get<std::string>();
    const std::vector<int32_t> ids = tokenizer->Encode(text);
    const std::vector<int32_t> special = tokenizer->Encode(text, {.parse_special = true});
    std::string line = Digest(ids);
    if (special != ids) line += " " + Digest(special);
    if (i % 40 == 0) line += " : " + Join(ids);
    const std::string decoded = tokenizer->Decode(ids);
    std::string expected = nfc ? Nfc(text) : text;
    std::erase_if(expected, [&](char c) { return !known[static_cast<uint8_t>(c)]; });
    exact += decoded == text;
    if (line == golden[i] && decoded == expected) continue;
    ADD_FAILURE() << "string " << i << ": " << strings[i] << "\n  golden " << golden[i] << "\n  here   " << line
                  << "\n  ids    " << Join(ids) << "\n  decoded " << decoded;
    if (++wrong == 20) break;
  }
  EXPECT_GT(exact, strings.size() * 3 / 4);  // the others are normalised, or lack a byte
}

TEST_P(TokenizerGoldenTest, DecodesAnyIdsAsHuggingFaceDoes) {
  const auto tokenizer = LoadTokenizer(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  int cases = 0;
  for (const std::string& line : ReadLines("decode.jsonl")) {
    const auto golden = nlohmann::json::parse(line);
    if (golden[0] != GetParam()) continue;
    ++cases;
    const auto ids = golden[1].get<std::vector<int32_t>>();
    for (const bool skip : {true, false}) {
      const DecodeOptions options = {.skip_special = skip};
      EXPECT_EQ(ReplaceInvalidUtf8(tokenizer->Decode(ids, options)), golden[skip ? 2 : 3]) << line;
      StreamDecoder stream(*tokenizer, options);
      std::string text;
      for (const int32_t id : ids) text += stream.Add(id);
      EXPECT_EQ(text + stream.Flush(), golden[skip ? 2 : 3]) << line;
    }
  }
  EXPECT_EQ(cases, GetParam() == std::string("gpt2") ? 0 : 150);
}

INSTANTIATE_TEST_SUITE_P(, TokenizerGoldenTest, testing::Values("smollm2", "gpt2", "llama3", "qwen2"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace stria
