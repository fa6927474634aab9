// The fast paths' own error is small beside the widths', on a real model and for every target of this machine.
#include "eval/kernel_quality.h"

#include <cstdio>
#include <cstdlib>

#include "eval/model_texts.h"
#include "eval/texts.h"
#include "gtest/gtest.h"

namespace stria {
namespace {

TEST(KernelQuality, TakesAtMostAQuarterOfWhatTheWidthCosts) {
  const char* path = std::getenv("STRIA_MODEL");
  ASSERT_NE(path, nullptr) << "STRIA_MODEL must name SmolLM2-135M-Instruct.Q4_1.gguf";
  auto model = LoadModel(path, {.threads = 2, .max_decode_rows = 8});
  ASSERT_TRUE(model.ok()) << model.status();
  constexpr size_t kTokens = 320;
  const auto texts = ReadGsm8k("eval/data/gsm8k_excerpt.jsonl", 1, 6 * kTokens);
  ASSERT_TRUE(texts.ok()) << texts.status();
  const auto cut = CutTexts(*model->tokenizer, *texts, kTokens);
  ASSERT_TRUE(cut.ok()) << cut.status();
  for (const Target target : AvailableTargets()) {
    if (target == Target::kPortable) continue;  // the same integers, many minutes
    const auto quality = MeasureKernelQuality(*model->transformer, target, 2, *cut);
    ASSERT_TRUE(quality.ok()) << quality.status();
    for (const KernelQuality& q : *quality) {
      std::printf("%s %s: width %.3g, kernel %.3g, both %.3g\n", Name(target), Name(q.width), q.width_kl, q.kernel_kl, q.both_kl);
    }
    const auto &fp16 = (*quality)[0], &int8 = (*quality)[1], &int4 = (*quality)[2], &int2 = (*quality)[3];
    EXPECT_EQ(fp16.width_kl, 0);
    EXPECT_LE(fp16.kernel_kl, 1e-5);
    EXPECT_LE(int8.both_kl, 1e-4);
    EXPECT_LE(int4.kernel_kl, int4.width_kl / 4);
    EXPECT_LE(int2.kernel_kl, int2.width_kl / 4);
    EXPECT_GT(int2.width_kl, 10 * int4.width_kl);  // the widths are what they say
  }
}

}  // namespace
}  // namespace stria
