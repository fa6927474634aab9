// Small random GGUF models, one for each way in which the supported families differ, against the numpy
// reference's logits and llama.cpp's greedy text.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/gguf/gguf_checkpoint.h"
#include "model/transformer/golden_for_test.h"

namespace stria {
namespace {

using Weights = TransformerOptions::Weights;

class RandomModel : public testing::TestWithParam<const char*> {
 protected:
  std::string Path(const char* suffix) const {
    return std::string("model/testdata/random_") + GetParam() + suffix;
  }

  std::unique_ptr<Transformer> Load(Weights weights) const {
    auto checkpoint = GgufCheckpoint::Open(Path(".gguf"));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    auto transformer =
        Transformer::Create(**checkpoint, {.weights = weights, .threads = 2, .max_prompt_rows = 64});
    EXPECT_TRUE(transformer.ok()) << transformer.status();
    return *std::move(transformer);
  }
};

TEST_P(RandomModel, GreedyTextEqualsLlamaCpp) {
  const std::vector<GreedyRun> runs = ReadGreedyRuns(Path(".greedy.json"));
  ASSERT_FALSE(runs.empty());
  EXPECT_GT(CountEqual(*Load(Weights::kBf16), runs, /*near_tie=*/0.15), 0);
}

TEST_P(RandomModel, LogitsMatchTheReference) {
  const GoldenLogits golden = ReadGoldenLogits(Path(".logits.bin"));
  for (const Weights weights : {Weights::kBf16, Weights::kInt8}) {
    const auto transformer = Load(weights);
    const GoldenScore score = ScoreThroughDecodeSteps(*transformer, golden);
    std::printf("%s: mean KL %.3g nats over %d tokens, the likeliest token agrees on %.1f %%\n",
                std::string(transformer->arithmetic(RowRole::kDecode)).c_str(), score.kl, score.tokens,
                100 * score.agreement);
    EXPECT_GE(score.tokens, 160);
    EXPECT_LT(score.kl, weights == Weights::kBf16 ? 2e-3 : 8e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RandomModel,
                         testing::Values("llama_tied", "llama3", "llama_linear", "qwen2", "qwen2_yarn",
                                         "qwen3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace stria
