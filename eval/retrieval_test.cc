// Eviction on a real model: what stood early in a long prompt is still found.
#include "eval/retrieval.h"

#include <cstdlib>

#include "eval/model_texts.h"
#include "gtest/gtest.h"

namespace stria {
namespace {

TEST(Retrieval, ANeedleOutlivesEviction) {
  const char* path = std::getenv("STRIA_MODEL");
  ASSERT_NE(path, nullptr) << "STRIA_MODEL must name SmolLM2-135M-Instruct.Q4_1.gguf";
  auto model = LoadModel(path, {.threads = 2, .max_decode_rows = 16, .max_prompt_rows = 256});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto prompts = NeedlePrompts(*model->tokenizer, 4, 700, 1);
  for (const RetrievalPrompt& prompt : prompts) {
    EXPECT_GT(prompt.prompt.size(), 600u);
    EXPECT_GE(prompt.answer.size(), 2u);
  }
  const auto whole = ScoreRetrieval(*model->transformer, 2, prompts, Width::kFp16, 1);
  const auto quarter = ScoreRetrieval(*model->transformer, 2, prompts, Width::kFp16, 0.25);
  ASSERT_TRUE(whole.ok() && quarter.ok());
  std::printf("whole: NLL %.3f, exact %.2f; a quarter: NLL %.3f, exact %.2f, 1/%.2f of the bytes\n", whole->nll, whole->exact,
              quarter->nll, quarter->exact, quarter->ratio);
  EXPECT_GE(whole->exact, 0.5);
  EXPECT_GE(quarter->exact, whole->exact - 0.25);
  EXPECT_LE(quarter->nll, whole->nll + 0.5);
  EXPECT_GT(quarter->ratio, 1.5 * whole->ratio);
}

}  // namespace
}  // namespace stria
