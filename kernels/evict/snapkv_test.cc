// The case table on every instruction set that this machine has; and the choice of keys from their scores.
#include "kernels/evict/snapkv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "kernels/evict/snapkv_cases.h"

namespace stria {
namespace {

AddVotes OnThreads(Target target, int threads) {
  return [=](const AttentionShape& shape, const ObservationArgs& args, float* scores) {
    ObservationScorer::Create(shape, target, threads)->Add(args, scores);
  };
}

}  // namespace

const std::vector<SnapKvPath>& SnapKvPaths() {
  static const std::vector<SnapKvPath> paths = [] {
    std::vector<SnapKvPath> all;
    for (Target target : AvailableTargets()) all.push_back({Name(target), OnThreads(target, 1), {OnThreads(target, 3)}});
    return all;
  }();
  return paths;
}

namespace {

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
