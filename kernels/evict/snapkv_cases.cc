// The case table of SnapKV's votes: the reference's scores, whoever adds them up.
#include "kernels/evict/snapkv_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"

namespace stria {
namespace {

float Normal(uint64_t seed, uint64_t i) {
  return static_cast<float>(std::sqrt(-2 * std::log(Uniform(seed, 0, i) + 1e-12)) *
                            std::cos(2 * M_PI * Uniform(seed, 1, i)));
}

// Staged keys, NaN behind `tokens`, and queries for the last rows.
struct Prompt {
  AttentionShape shape;
  int tokens, capacity;
  std::vector<Half> keys;
  std::vector<float> q;

  Prompt(const AttentionShape& shape, int tokens)
      : shape(shape),
        tokens(tokens),
        capacity(tokens + 5),
        keys(size_t{1} * shape.kv_heads * capacity * shape.head_dim, Half{0xffff}) {
    for (int h = 0; h < shape.kv_heads; ++h)
      for (int i = 0; i < tokens * shape.head_dim; ++i)
        keys[size_t{1} * h * capacity * shape.head_dim + i] = ToHalf(Normal(1 + h, i));
    for (int i = 0; i < kObservationWindow * shape.heads * shape.head_dim; ++i) q.push_back(2 * Normal(50, i));
  }
  ObservationArgs Rows(int begin, int end) const {
    const int first = tokens - kObservationWindow;
    return {.query_begin = begin,
            .query_end = end,
            .q = q.data() + size_t{1} * (begin - first) * shape.heads * shape.head_dim,
            .keys = {keys.data(), ptrdiff_t{1} * capacity * shape.head_dim},
            .scored = first};
  }
};

const AttentionShape kShapes[] = {{1, 1, 16}, {9, 3, 64}, {4, 1, 80}, {7, 1, 128}, {16, 1, 48}, {2, 2, 256}};

class SnapKvTest : public testing::TestWithParam<SnapKvPath> {};

TEST_P(SnapKvTest, VotesEqualTheReferenceForEveryShapeAndLength) {
  for (const AttentionShape& shape : kShapes) {
    for (const int tokens : {33, 64, 96, 160, 161, 300}) {
      const Prompt prompt(shape, tokens);
      const int scored = tokens - kObservationWindow;
      std::vector<double> expected(size_t{1} * shape.kv_heads * scored);
      std::vector<float> got(expected.size());
      AddObservationReference(shape, prompt.Rows(scored, tokens), expected.data());
      GetParam().add(shape, prompt.Rows(scored, tokens), got.data());
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], 1e-5 + 1e-4 * expected[i])
            << "head_dim " << shape.head_dim << " group " << shape.group() << " tokens " << tokens << " at " << i;
      // Every query hands out one vote, of which the window's own keys get a part.
      EXPECT_LT(std::accumulate(got.begin(), got.end(), 0.0), kObservationWindow * shape.heads);
    }
  }
}

TEST_P(SnapKvTest, RowsMayComeInPartsAndTwinsChangeNothing) {
  const Prompt prompt({6, 2, 64}, 517);
  const int first = 517 - kObservationWindow;
  std::vector<float> whole(2 * first), parts(2 * first);
  GetParam().add(prompt.shape, prompt.Rows(first, 517), whole.data());
  for (const auto& twin : GetParam().twins) {
    std::vector<float> same(2 * first);
    twin(prompt.shape, prompt.Rows(first, 517), same.data());
    EXPECT_EQ(whole, same);
  }
  for (int begin = first, step = 1; begin < 517; begin += step, step += 4)
    GetParam().add(prompt.shape, prompt.Rows(begin, std::min(begin + step, 517)), parts.data());
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(parts[i], whole[i], 1e-6 + 1e-5 * whole[i]);
}

INSTANTIATE_TEST_SUITE_P(Paths, SnapKvTest, testing::ValuesIn(SnapKvPaths()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stria
