// The case table of prefill attention: the double reference's rows, whoever computes them.
#include "kernels/attention/prefill_attention_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/attention/prefill_test_data.h"

namespace stria {
namespace {

using namespace prefill_test;  // NOLINT: test data

std::vector<float> Attend(const PrefillFunction& attend, const Prompt& prompt, int chunk) {
  std::vector<float> out(prompt.q.size(), std::numeric_limits<float>::quiet_NaN());
  for (int begin = 0; begin < prompt.tokens; begin += chunk)
    attend(prompt.shape, prompt.Args(begin, std::min(prompt.tokens, begin + chunk), out.data()));
  return out;
}

class PrefillAttentionTest : public testing::TestWithParam<PrefillPath> {};

TEST_P(PrefillAttentionTest, EqualsReferenceForEveryShapeAndLength) {
  for (const AttentionShape& shape : kShapes) {
    for (int tokens : {1, 2, 8, 9, 17, 64, 65, 127, 128, 129, 200}) {
      const Prompt prompt(shape, tokens, 2);
      EXPECT_LT(RelativeError(Attend(GetParam().attend, prompt, tokens), prompt.Reference()), GetParam().bound)
          << "head_dim " << shape.head_dim << " group " << shape.group() << " tokens " << tokens;
    }
  }
}

TEST_P(PrefillAttentionTest, ChunksChangeNothingButRoundingAndTwinsNothing) {
  const Prompt prompt({6, 2, 64}, 333, 2);
  const std::vector<float> whole = Attend(GetParam().attend, prompt, 333);
  for (int chunk : {1, 7, 64, 100}) {
    EXPECT_LT(RelativeError(Attend(GetParam().attend, prompt, chunk), whole), GetParam().bound) << "chunk " << chunk;
    for (const auto& twin : GetParam().twins)
      EXPECT_LT(RelativeError(Attend(twin, prompt, chunk), whole), GetParam().bound) << "chunk " << chunk;
  }
  for (const auto& twin : GetParam().twins) EXPECT_EQ(Attend(twin, prompt, 333), whole);
}

INSTANTIATE_TEST_SUITE_P(Paths, PrefillAttentionTest, testing::ValuesIn(PrefillPaths()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stria
