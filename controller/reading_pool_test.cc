#include "controller/reading_pool.h"

#include "gtest/gtest.h"

namespace stria {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ReadingPoolTest : public testing::Test {
 protected:
  // The round's INT4 reading of layer 0, or nothing.
  std::optional<float> Add(const std::string& worker, float kl4, uint32_t rank = 0) {
    const LayerReading reading{.layer = 0, .kind = CacheKind::kPlain, .kl = {1, kl4, 0}};
    const auto round = pool_.Add(worker, rank, {&reading, 1}, now_);
    if (!round.has_value()) return {};
    EXPECT_EQ(round->size(), 1u);
    return round->at(0).kl[1];
  }

  MonotonicTime now_{seconds(100)};
  ReadingPool pool_;
};

TEST_F(ReadingPoolTest, TheFirstFrameIsARoundAndTheNextIsASecondLater) {
  EXPECT_EQ(Add("a", 0.5f), 0.5f);
  now_ += milliseconds(400);
  EXPECT_FALSE(Add("a", 0.1f).has_value());
  EXPECT_FALSE(Add("a", 0.3f).has_value());
  now_ += milliseconds(600);
  EXPECT_FLOAT_EQ(*Add("a", 0.5f), 0.3f) << "the mean of the three";
}

TEST_F(ReadingPoolTest, ABusyWorkerCountsOnce) {
  Add("a", 0);
  Add("b", 1);
  for (int i = 0; i < 99; ++i) Add("a", 0);
  now_ += seconds(1);
  EXPECT_FLOAT_EQ(*Add("b", 1), 0.5f);
}

TEST_F(ReadingPoolTest, AQuietWorkersLatestMeanCountsWhileItLives) {
  Add("a", 0);
  Add("b", 0.8f);
  now_ += seconds(1);
  EXPECT_FLOAT_EQ(*Add("a", 0), 0.4f);
  now_ += seconds(5);
  EXPECT_FLOAT_EQ(*Add("a", 0), 0.4f);
  now_ += seconds(6);
  EXPECT_FLOAT_EQ(*Add("a", 0), 0) << "b has been silent for eleven seconds";
}

TEST_F(ReadingPoolTest, RanksKeepApart) {
  EXPECT_EQ(Add("a0", 0.1f, 0), 0.1f);
  EXPECT_EQ(Add("a1", 0.9f, 1), 0.9f);
}

}  // namespace
}  // namespace stria
