#include "proto/cache_plan.h"

#include <gtest/gtest.h>

namespace stria {
namespace {

TEST(EvictedTokens, TakesWholeUnitsAndNeverTheLast64) {
  EXPECT_EQ(EvictedTokens(1000, 0), 0u);     // 0: all stay
  EXPECT_EQ(EvictedTokens(1000, 1000), 0u);
  EXPECT_EQ(EvictedTokens(1000, 5000), 0u);
  EXPECT_EQ(EvictedTokens(1000, 500), 448u);  // 552 stay: the least above 500 that is 1000 mod 64 = 40
  EXPECT_EQ(EvictedTokens(1000, 552), 448u);
  EXPECT_EQ(EvictedTokens(1000, 553), 384u);
  EXPECT_EQ(EvictedTokens(1000, 1), 896u);  // 104 = 64 + 40 stay
  for (const uint32_t prompt : {1u, 31u, 32u, 63u, 64u, 65u, 127u}) EXPECT_EQ(EvictedTokens(prompt, 1), 0u) << prompt;
  EXPECT_EQ(EvictedTokens(128, 1), 64u);
  EXPECT_EQ(EvictedTokens(128, 64), 64u);
  EXPECT_EQ(EvictedTokens(128, 65), 0u);
  EXPECT_EQ(EvictedTokens(129, 65), 64u);
}

TEST(CachePlan, LayersThatInheritReadTheNearestEarlierCache) {
  CachePlan plan{.follow_tiers = false, .layers = std::vector<LayerAction>(6)};
  for (const size_t layer : {2, 3, 5}) plan.layers[layer].kind = LayerAction::Kind::kInherit;
  const size_t anchors[] = {0, 1, 1, 1, 4, 4}, ends[] = {1, 4, 4, 4, 6, 6};
  for (size_t layer = 0; layer < 6; ++layer) {
    EXPECT_EQ(plan.Anchor(layer), anchors[layer]) << layer;
    EXPECT_EQ(plan.GroupEnd(layer), ends[layer]) << layer;
    EXPECT_EQ(plan.Holds(layer), anchors[layer] == layer) << layer;
  }
  EXPECT_EQ(CachePlan().Anchor(4), 4u);
  EXPECT_EQ(CachePlan().GroupEnd(4), 5u);
}

}  // namespace
}  // namespace stria
