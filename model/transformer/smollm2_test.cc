// SmolLM2-135M-Instruct, the real weights, against the numpy reference's logits and llama.cpp's greedy text.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/gguf/gguf_checkpoint.h"
#include "model/transformer/golden_for_test.h"

namespace stria {
namespace {

using Weights = TransformerOptions::Weights;

class SmolLm2 : public testing::Test {
 protected:
  void Load(Weights weights) {
    const char* path = std::getenv("STRIA_MODEL");
    ASSERT_NE(path, nullptr)
        << "STRIA_MODEL must name SmolLM2-135M-Instruct.Q4_1.gguf (./stria test sets it)";
    auto checkpoint = GgufCheckpoint::Open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    auto transformer =
        Transformer::Create(**checkpoint, {.weights = weights, .threads = 2, .max_prompt_rows = 64});
    ASSERT_TRUE(transformer.ok()) << transformer.status();
    transformer_ = *std::move(transformer);
  }

  // The golden classes see about 95 % of the KL, so bounds are 5 % under what is required.
  void ExpectKlUnder(double bound, RowRole role = RowRole::kDecode) {
    const GoldenScore score =
        ScoreThroughDecodeSteps(*transformer_, ReadGoldenLogits("model/testdata/smollm2_logits.bin"), role);
    std::printf("%s: mean KL %.3g nats over %d tokens, the likeliest token agrees on %.2f %%\n",
                std::string(transformer_->arithmetic(role)).c_str(), score.kl, score.tokens,
                100 * score.agreement);
    EXPECT_GE(score.tokens, 4096);
    EXPECT_LT(score.kl, 0.95 * bound);
  }

  std::unique_ptr<Transformer> transformer_;
};

TEST_F(SmolLm2, Int8LogitsThroughDecodeSteps) {
  ASSERT_NO_FATAL_FAILURE(Load(Weights::kInt8));
  ExpectKlUnder(5e-3);
}

// Had all rows been prompt rows. Where the machine adds up byte products these take one digit of their activations.
TEST_F(SmolLm2, Int8LogitsOfPromptRows) {
  ASSERT_NO_FATAL_FAILURE(Load(Weights::kInt8));
  ExpectKlUnder(7e-3, RowRole::kPrompt);
}

TEST_F(SmolLm2, Bf16LogitsThroughDecodeSteps) {
  ASSERT_NO_FATAL_FAILURE(Load(Weights::kBf16));
  ExpectKlUnder(2e-4);
}

// 64 greedy tokens of 50 prompts, bf16 weights on both sides: equal, or first different at a near tie of
// llama.cpp's run.
TEST_F(SmolLm2, Bf16GreedyTextEqualsLlamaCpp) {
  ASSERT_NO_FATAL_FAILURE(Load(Weights::kBf16));
  const std::vector<GreedyRun> runs = ReadGreedyRuns("model/testdata/smollm2_greedy.json");
  ASSERT_EQ(runs.size(), 50u);
  for (const GreedyRun& run : runs) ASSERT_EQ(run.tokens.size(), 64u);
  EXPECT_GE(CountEqual(*transformer_, runs, /*near_tie=*/0.15), 30);
}

}  // namespace
}  // namespace stria
