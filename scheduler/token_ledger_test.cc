#include "scheduler/token_ledger.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/random.h"

namespace stria {
namespace {

SequenceOutput Output(uint32_t first, std::vector<int32_t> tokens, FinishReason finish = FinishReason::kNone) {
  SequenceOutput output;
  output.first_index = first;
  output.finish = finish;
  for (const int32_t token : tokens) {
    output.tokens.emplace_back();
    output.tokens.back().token = token;
  }
  return output;
}

std::vector<int32_t> Ids(const std::vector<TokenOut>& tokens) {
  std::vector<int32_t> ids;
  for (const TokenOut& token : tokens) ids.push_back(token.token);
  return ids;
}

TEST(TokenLedger, TakesWhatIsNew) {
  TokenLedger ledger;
  EXPECT_EQ(Ids(ledger.Accept(Output(0, {5, 6})).tokens), (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(Ids(ledger.Accept(Output(1, {6, 7})).tokens), (std::vector<int32_t>{7}));
  EXPECT_TRUE(ledger.Accept(Output(0, {5, 6, 7})).tokens.empty());
  EXPECT_EQ(ledger.tokens(), (std::vector<int32_t>{5, 6, 7}));
}

TEST(TokenLedger, AGapWaitsAndItsEndDoesNotCount) {
  TokenLedger ledger;
  ledger.Accept(Output(0, {5}));
  const auto accepted = ledger.Accept(Output(2, {7}, FinishReason::kStop));
  EXPECT_TRUE(accepted.gap);
  EXPECT_FALSE(accepted.finished);
  EXPECT_TRUE(accepted.tokens.empty());
  const auto again = ledger.Accept(Output(1, {6, 7}, FinishReason::kStop));
  EXPECT_FALSE(again.gap);
  EXPECT_TRUE(again.finished);
  EXPECT_EQ(ledger.tokens(), (std::vector<int32_t>{5, 6, 7}));
}

TEST(TokenLedger, AnEndWithoutTokens) {
  TokenLedger ledger;
  EXPECT_TRUE(ledger.Accept(Output(0, {}, FinishReason::kCancelled)).finished);
  ledger.Accept(Output(0, {1, 2}));
  EXPECT_TRUE(ledger.Accept(Output(2, {}, FinishReason::kCancelled)).finished);
  EXPECT_FALSE(ledger.Accept(Output(1, {}, FinishReason::kCancelled)).finished) << "an end before tokens that came is not this end";
}

// Whatever pieces come in whatever order, doubled or missing: sent again from the first missing one, everything arrives once.
TEST(TokenLedger, AnyOrderOfPiecesGivesTheSequenceOnce) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    TokenLedger ledger;
    std::vector<int32_t> delivered;
    const uint32_t length = 50;
    bool finished = false;
    for (uint64_t step = 0; !finished && step < 1000; ++step) {
      // Now and then what is missing next; otherwise any piece.
      const uint32_t first = Uniform(seed, 1, step) < 0.3 ? ledger.size() : static_cast<uint32_t>(Uniform(seed, 2, step) * length);
      const uint32_t end = std::min(length, first + static_cast<uint32_t>(Uniform(seed, 3, step) * 6));
      std::vector<int32_t> tokens;
      for (uint32_t i = first; i < end; ++i) tokens.push_back(static_cast<int32_t>(i * 3));
      const auto accepted = ledger.Accept(Output(first, tokens, end == length ? FinishReason::kLength : FinishReason::kNone));
      for (const TokenOut& token : accepted.tokens) delivered.push_back(token.token);
      finished = accepted.finished;
    }
    ASSERT_TRUE(finished) << seed;
    ASSERT_EQ(delivered.size(), length) << seed;
    for (uint32_t i = 0; i < length; ++i) ASSERT_EQ(delivered[i], static_cast<int32_t>(i * 3));
  }
}

}  // namespace
}  // namespace stria
