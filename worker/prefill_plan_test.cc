#include "worker/prefill_plan.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace stria {
namespace {

ModelConfig SmallModel() {
  ModelConfig model;
  model.layers = 4;
  model.hidden = 64;
  model.heads = model.kv_heads = 2;
  model.head_dim = 32;
  model.ffn = 128;
  return model;
}

// Runs prompts unit by unit; `arrive(unit)` may add some. Returns the unit at which each order finished.
std::vector<uint64_t> Finish(std::vector<PrefillProgress> prompts, uint32_t chunk, uint64_t short_every = 0,
                             uint64_t most = 100000) {
  const PrefillCost cost(SmallModel());
  std::vector<uint64_t> finished(10000, 0);
  uint64_t order = prompts.size();
  for (uint64_t unit = 0; unit < most && !prompts.empty(); ++unit) {
    if (short_every > 0 && unit % short_every == 0) prompts.push_back({.tokens = 30, .order = order++});
    const size_t next = NextPrompt(cost, prompts, unit);
    PrefillProgress& p = prompts[next];
    p.begin = std::min(p.begin + chunk, p.tokens);
    if (p.begin < p.tokens) continue;
    p.begin = 0;
    if (++p.layer < 4) continue;
    finished[p.order] = unit + 1;
    prompts.erase(prompts.begin() + next);
  }
  return finished;
}

// "layer:begin-end …" of all units of a prompt.
std::string Units(const PromptShape& shape, const CachePlan& plan, uint32_t chunk) {
  std::string all;
  for (PrefillUnit unit = FirstUnit(shape, chunk); unit.layer < 4; unit = NextUnit(shape, plan, chunk, unit))
    all += std::to_string(unit.layer) + ":" + std::to_string(unit.begin) + "-" + std::to_string(unit.end) + " ";
  return all;
}

TEST(NextUnit, LayerByLayer) {
  EXPECT_EQ(Units({150, 150, 0}, {}, 100), "0:0-100 0:100-150 1:0-100 1:100-150 2:0-100 2:100-150 3:0-100 3:100-150 ");
  EXPECT_EQ(Units({150, 130, 0}, {}, 200), "0:0-150 1:0-150 2:0-150 3:0-150 ");
  EXPECT_EQ(Units({150, 150, 64}, {}, 200), "0:0-150 1:0-150 2:0-150 3:0-150 ");
}

TEST(NextUnit, DeliveredTokensWaitForTheEvictionOfWhatTheyRead) {
  CachePlan plan{.follow_tiers = false, .layers = std::vector<LayerAction>(4), .keep_tokens = 64};
  EXPECT_EQ(Units({150, 130, 64}, plan, 200), "0:0-130 0:130-150 1:0-130 1:130-150 2:0-130 2:130-150 3:0-130 3:130-150 ");
  plan.layers[2].kind = LayerAction::Kind::kInherit;
  EXPECT_EQ(Units({150, 130, 64}, plan, 100),
            "0:0-100 0:100-130 0:130-150 1:0-100 1:100-130 2:0-100 2:100-130 1:130-150 2:130-150 "
            "3:0-100 3:100-130 3:130-150 ");
}

TEST(NextUnit, SharedTokensAreNotComputedAndMoveNoBorder) {
  EXPECT_EQ(Units({250, 250, 0, 64}, {}, 100),
            "0:64-100 0:100-200 0:200-250 1:64-100 1:100-200 1:200-250 2:64-100 2:100-200 2:200-250 "
            "3:64-100 3:100-200 3:200-250 ");
  CachePlan plan{.follow_tiers = false, .layers = std::vector<LayerAction>(4)};
  plan.layers[2].kind = LayerAction::Kind::kInherit;
  EXPECT_EQ(Units({250, 240, 0, 192}, plan, 96), "0:192-250 1:192-250 2:192-250 3:192-250 ");
}

TEST(NextPrompt, AShortPromptNeverWaitsForALongOne) {
  // The long one is the oldest: it takes every fourth unit, the short one the others.
  const auto finished = Finish({{.tokens = 7000, .order = 0}, {.tokens = 30, .order = 1}}, 256);
  EXPECT_LE(finished[1], 4u + 2);
  EXPECT_EQ(finished[0], 4u * 28 + 4);
}

TEST(NextPrompt, AStreamOfShortPromptsStarvesNobody) {
  // A short prompt takes 4 units and one comes every 5: without the oldest's share the long one would get a
  // fifth at most.
  const auto finished = Finish({{.tokens = 7000, .order = 0}}, 256, 5, 2000);
  EXPECT_GT(finished[0], 0u);
  EXPECT_LE(finished[0], 4u * 4 * 28 + 4);
  // With more short work than time, it still gets its quarter.
  const auto flooded = Finish({{.tokens = 7000, .order = 0}}, 256, 3, 2000);
  EXPECT_GT(flooded[0], 0u);
  EXPECT_LE(flooded[0], 4u * 4 * 28 + 4);
}

TEST(PrefillCost, LearnsARate) {
  PrefillCost cost(SmallModel());
  // Dense: 64 · (2 · 64 + 2 · 64 + 3 · 128) per row; attention: 2 · 64 per pair, half of the square.
  EXPECT_DOUBLE_EQ(cost.UnitWork(0, 100), 100 * 64 * 640 + 100. * 100 / 2 * 128);
  EXPECT_DOUBLE_EQ(cost.UnitWork(0, 50) + cost.UnitWork(50, 100), cost.UnitWork(0, 100));
  EXPECT_DOUBLE_EQ(cost.RemainingWork({.tokens = 100, .layer = 3, .begin = 50}), cost.UnitWork(50, 100));
  EXPECT_DOUBLE_EQ(cost.RemainingWork({.tokens = 100, .layer = 2, .begin = 80, .shared = 64}),
                   cost.UnitWork(80, 100) + cost.UnitWork(64, 100));
  cost.Observe(1e6, 1e-3);
  EXPECT_DOUBLE_EQ(cost.Seconds(2e6), 2e-3);
  for (int i = 0; i < 100; ++i) cost.Observe(1e6, 3e-3);
  EXPECT_NEAR(cost.Seconds(1e6), 3e-3, 1e-5);
}

}  // namespace
}  // namespace stria