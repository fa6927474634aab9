// Seeded mutations of kept requests: whatever a body holds, each reader takes it or says what is wrong, never a crash. An input that
// once broke something is added to testdata/requests.txt, a line each. STRIA_FUZZ_ROUNDS makes it longer.
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/fuzz.h"
#include "base/random.h"
#include "services/common/http_error.h"
#include "services/scheduler/api_request.h"

namespace stria {
namespace {

constexpr uint64_t kRounds = 40000;

class Mutator {
 public:
  Mutator(std::vector<std::string> corpus, uint64_t seed) : corpus_(std::move(corpus)), seed_(seed) {}

  std::string Next() {
    std::string text = corpus_[Draw(corpus_.size())];
    for (uint64_t i = Draw(4); i > 0; --i) Mutate(text);
    return text;
  }

 private:
  uint64_t Draw(uint64_t below) { return static_cast<uint64_t>(Uniform(seed_, 0, draws_++) * static_cast<double>(below)); }

  // A line's end, or the end of a piece that looks like a value.
  size_t Place(const std::string& text) {
    const size_t at = Draw(text.size() + 1);
    if (Draw(2) == 0) return at;
    const size_t next = text.find_first_of(",:[]{}\"", at);
    return next == std::string::npos ? at : next;
  }

  void Mutate(std::string& text) {
    static const char* const kPieces[] = {"null", "-1", "1e309", "18446744073709551616", "\"", "\\u0000", "\\ud83d", "{\"mode\":\"int4\"}", "[", "]", "}", "{",
                                          ",", ":", "\xff", "\xf0\x9f\x98", "\"temperature\":", "\"n\":129,", "true", "\"kv\":", "\"messages\":", "\"prompt\":", "0.1e-5",
                                          "\"priority\":", "\"stop\":[\"a\",\"b\"],"};
    const size_t at = Place(text);
    switch (Draw(6)) {
      case 0:
        if (!text.empty()) text[Draw(text.size())] = static_cast<char>(Draw(256));
        break;
      case 1: text.erase(at, 1 + Draw(12)); break;
      case 2: text.insert(at, kPieces[Draw(std::size(kPieces))]); break;
      case 3: {  // a piece of another
        const std::string& other = corpus_[Draw(corpus_.size())];
        const size_t from = Place(other);
        text.insert(at, other.substr(from, 1 + Draw(40)));
        break;
      }
      case 4: {  // a piece again
        const std::string piece = text.substr(at, 1 + Draw(60));
        for (uint64_t i = 1 + Draw(8); i > 0; --i) text.insert(at, piece);
        break;
      }
      default: {  // a value in place of another
        const size_t end = text.find_first_of(",]}", at);
        if (end != std::string::npos) text.replace(at, end - at, kPieces[Draw(std::size(kPieces))]);
      }
    }
  }

  const std::vector<std::string> corpus_;
  const uint64_t seed_;
  uint64_t draws_ = 0;
};

struct Tally {
  int taken = 0, refused = 0;
};

// Reads a body with a reader of its own kind of request.
template <typename Request, typename Reader>
void Read(Reader reader, const std::string& body, Tally& tally) {
  const RequestLimits limits{.vocab = 100, .max_sequences = 8, .has_pack = true};
  Request request;
  const std::optional<ApiError> error = reader(body, limits, &request);
  if (!error) {
    ++tally.taken;
    return;
  }
  ++tally.refused;
  EXPECT_FALSE(error->message.empty()) << body;
  EXPECT_LT(error->message.size(), 2000u) << "it quotes, it does not repeat";
  const HttpResponse response = ToResponse(*error);
  EXPECT_EQ(response.status, 400);
  EXPECT_TRUE(nlohmann::json::accept(response.body)) << "valid UTF-8, valid JSON, whatever it quotes: " << response.body;
}

TEST(ApiFuzz, AnyBodyIsTakenOrRefusedByName) {
  std::ifstream file("services/scheduler/testdata/requests.txt");
  std::vector<std::string> corpus;
  for (std::string line; std::getline(file, line);) corpus.push_back(line);
  ASSERT_GE(corpus.size(), 14u);
  const uint64_t rounds = FuzzRounds(kRounds);
  Mutator mutator(corpus, 20261);
  Tally chat, completion, score, tokenize, detokenize;
  for (uint64_t round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    const std::string body = round < corpus.size() ? corpus[round] : mutator.Next();
    Read<ChatRequest>(ReadChat, body, chat);
    Read<CompletionRequest>(ReadCompletion, body, completion);
    Read<ScoreRequest>(ReadScore, body, score);
    Read<TokenizeRequest>(ReadTokenize, body, tokenize);
    Read<DetokenizeRequest>(ReadDetokenize, body, detokenize);
  }
  // The mutations are mild enough to reach the fields, and not all harmless.
  for (const Tally& tally : {chat, completion, score, tokenize, detokenize}) {
    EXPECT_GT(tally.taken, 20);
    EXPECT_GT(tally.refused, 1000);
  }
}

}  // namespace
}  // namespace stria
