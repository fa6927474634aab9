// Sharing a prompt's pages must cost less than their width does, on a real model.
#include "eval/prefix_quality.h"

#include <cstdlib>

#include "eval/model_texts.h"
#include "eval/texts.h"
#include "gtest/gtest.h"

namespace stria {
namespace {

TEST(PrefixQuality, SharingCostsLessThanTheWidth) {
  const char* path = std::getenv("STRIA_MODEL");
  ASSERT_NE(path, nullptr) << "STRIA_MODEL must name SmolLM2-135M-Instruct.Q4_1.gguf";
  auto model = LoadModel(path, {.threads = 2, .max_decode_rows = 4});
  ASSERT_TRUE(model.ok()) << model.status();
  constexpr size_t kTokens = 512;
  for (const bool gsm8k : {true, false}) {
    const auto texts = gsm8k ? ReadGsm8k("eval/data/gsm8k_excerpt.jsonl", 1, 6 * kTokens)
                             : ReadDialogues("eval/data/tau_airline_excerpt.jsonl", 1, 6 * kTokens);
    ASSERT_TRUE(texts.ok()) << texts.status();
    const auto cut = CutTexts(*model->tokenizer, *texts, kTokens);
    ASSERT_TRUE(cut.ok()) << cut.status();
    const auto quality = MeasurePrefixQuality(*model->transformer, {.threads = 2}, *cut,
                                              {Width::kFp16, Width::kInt8, Width::kInt4, Width::kInt2});
    ASSERT_TRUE(quality.ok()) << quality.status();
    for (const PrefixQuality& q : *quality)
      std::printf("%s: width %.3g, sharing %.3g, both %.3g\n", Name(q.width), q.width_kl, q.sharing_kl, q.both_kl);
    EXPECT_EQ((*quality)[0].width_kl, 0);
    EXPECT_LE((*quality)[0].sharing_kl, 1e-6);  // FP16 pages hold what was computed
    EXPECT_LT((*quality)[2].sharing_kl, (*quality)[2].width_kl);
    EXPECT_LT((*quality)[3].sharing_kl, (*quality)[3].width_kl);
    EXPECT_GT((*quality)[3].sharing_kl, 1e-4);  // it is there
  }
}

}  // namespace
}  // namespace stria
