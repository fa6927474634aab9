#include "kernels/evict/snapkv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

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

class SnapKvTest : public testing::TestWithParam<Target> {};

TEST_P(SnapKvTest, VotesEqualTheReferenceForEveryShapeAndLength) {
  for (const AttentionShape& shape : kShapes) {
    for (const int tokens : {33, 64, 96, 160, 161, 300}) {
      const Prompt prompt(shape, tokens);
      const int scored = tokens - kObservationWindow;
      std::vector<double> expected(size_t{1} * shape.kv_heads * scored);
      std::vector<float> got(expected.size());
      AddObservationReference(shape, prompt.Rows(scored, tokens), expected.data());
      ObservationScorer::Create(shape, GetParam(), 1)->Add(prompt.Rows(scored, tokens), got.data());
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], expected[i], 1e-5 + 1e-4 * expected[i])
            << "head_dim " << shape.head_dim << " group " << shape.group() << " tokens " << tokens << " at " << i;
      // Every query hands out one vote, of which the window's own keys get a part.
      EXPECT_LT(std::accumulate(got.begin(), got.end(), 0.0), kObservationWindow * shape.heads);
    }
  }
}

TEST_P(SnapKvTest, RowsMayComeInPartsAndThreadsChangeNothing) {
  const Prompt prompt({6, 2, 64}, 517);
  const int first = 517 - kObservationWindow;
  std::vector<float> whole(2 * first), threads(2 * first), parts(2 * first);
  ObservationScorer::Create(prompt.shape, GetParam(), 1)->Add(prompt.Rows(first, 517), whole.data());
  ObservationScorer::Create(prompt.shape, GetParam(), 3)->Add(prompt.Rows(first, 517), threads.data());
  EXPECT_EQ(whole, threads);
  const auto scorer = ObservationScorer::Create(prompt.shape, GetParam(), 1);
  for (int begin = first, step = 1; begin < 517; begin += step, step += 4)
    scorer->Add(prompt.Rows(begin, std::min(begin + step, 517)), parts.data());
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(parts[i], whole[i], 1e-6 + 1e-5 * whole[i]);
}

INSTANTIATE_TEST_SUITE_P(Targets, SnapKvTest,
                         testing::ValuesIn(AvailableTargets().begin(), AvailableTargets().end()),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST(SelectKeys, ANeighbourhoodStaysWithItsBestKey) {
  std::vector<float> scores(40, 0.0f);
  scores[20] = 1;
  scores[30] = 2;
  EXPECT_EQ(SelectKeys(scores, 40, 7), (std::vector<int32_t>{27, 28, 29, 30, 31, 32, 33}));
  EXPECT_EQ(SelectKeys(scores, 40, 9), (std::vector<int32_t>{17, 18, 27, 28, 29, 30, 31, 32, 33}));  // earlier ones first
  // A key that is no candidate itself still lifts its neighbours.
  EXPECT_EQ(SelectKeys(scores, 29, 2), (std::vector<int32_t>{27, 28}));
}

TEST(SelectKeys, TiesGoToTheEarlierAndEdgesAreCut) {
  const std::vector<float> equal(10, 0.5f);
  EXPECT_EQ(SelectKeys(equal, 10, 3), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(SelectKeys(equal, 10, 0), std::vector<int32_t>());
  EXPECT_EQ(SelectKeys(equal, 10, 10).size(), 10u);
  std::vector<float> last(10, 0.0f);
  last[9] = 1;
  EXPECT_EQ(SelectKeys(last, 10, 4), (std::vector<int32_t>{6, 7, 8, 9}));
}

TEST(SelectKeys, NanNeverWins) {
  std::vector<float> scores(30, 0.1f);
  scores[5] = std::numeric_limits<float>::quiet_NaN();
  scores[20] = 1;
  EXPECT_EQ(SelectKeys(scores, 30, 7), (std::vector<int32_t>{17, 18, 19, 20, 21, 22, 23}));
  const std::vector<float> bad(30, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(SelectKeys(bad, 30, 2), (std::vector<int32_t>{0, 1}));
}

// Against a plain implementation: sort all, take the first.
TEST(SelectKeys, EqualsSortingEverything) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int size = 50 + static_cast<int>(Uniform(seed, 0, 0) * 200);
    const int candidates = size - 32, count = static_cast<int>(Uniform(seed, 0, 1) * candidates);
    std::vector<float> scores(size);
    for (int i = 0; i < size; ++i) scores[i] = std::floor(static_cast<float>(Uniform(seed, 1, i)) * 20);  // many ties
    std::vector<std::pair<float, int>> all;
    for (int t = 0; t < candidates; ++t) {
      float best = 0;
      for (int i = -3; i <= 3; ++i)
        if (t + i >= 0 && t + i < size) best = std::max(best, scores[t + i]);
      all.emplace_back(-best, t);
    }
    std::stable_sort(all.begin(), all.end());
    std::vector<int32_t> expected;
    for (int i = 0; i < count; ++i) expected.push_back(all[i].second);
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(SelectKeys(scores, candidates, count), expected) << seed;
  }
}

}  // namespace
}  // namespace stria
