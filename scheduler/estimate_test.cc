#include "scheduler/estimate.h"

#include <gtest/gtest.h>

namespace stria {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Two layers of different shape. Numbers are round so that sums can be done in the head.
WorkerHello TwoLayers() {
  WorkerHello hello;
  hello.sink_pages = 1;
  hello.staging_bytes_per_token = 10;
  LayerBytes a{.key_page = {1000, 2000, 4000, 8000}, .value_page = {1100, 2100, 4100, 8000}, .ring = 16000};
  LayerBytes b{.key_page = {500, 1000, 2000, 4000}, .value_page = {600, 1200, 2200, 4000}, .ring = 8000};
  hello.layers = {a, b};
  return hello;
}

std::vector<LayerWidths> All(Width keys, Width values) { return {{keys, values}, {keys, values}}; }

TEST(MemoryDemand, CountsWholeSlabsOfEachPageSize) {
  MemoryDemand demand;
  demand.AddPages(1 << 20, 2);  // one slab, full
  EXPECT_EQ(demand.Footprint(), 2 * kMiB);
  demand.AddPages(1 << 20, 1);
  EXPECT_EQ(demand.Footprint(), 4 * kMiB);
  demand.AddPages(700 << 10, 2);  // 700 KiB: two to a slab, 648 KiB of it lost
  EXPECT_EQ(demand.Footprint(), 6 * kMiB);
  demand.AddPages(700 << 10, 1);
  EXPECT_EQ(demand.Footprint(), 8 * kMiB);
  demand.AddBytes(5);
  EXPECT_EQ(demand.Footprint(), 8 * kMiB + 5);
  EXPECT_EQ(demand.Bytes(), 3 * kMiB + 3 * (700 << 10) + 5);
}

TEST(MemoryDemand, WhatIsTakenBackLeavesNothing) {
  MemoryDemand a, b;
  a.AddPages(4096, 3);
  a.AddBytes(7);
  b.AddPages(8192, 1);
  MemoryDemand sum = a + b;
  sum -= a;
  EXPECT_EQ(sum, b);
  sum -= b;
  EXPECT_EQ(sum, MemoryDemand{});
}

TEST(MemoryDemand, TwoSequencesShareSlabs) {
  MemoryDemand one;
  one.AddPages(1 << 20, 1);
  EXPECT_EQ(one.Footprint(), 2 * kMiB);
  EXPECT_EQ((one + one).Footprint(), 2 * kMiB);
}

TEST(Estimate, RingsAloneBeforeTheFirstPage) {
  const WorkerHello hello = TwoLayers();
  EXPECT_EQ(CacheDemand(hello, All(Width::kInt4, Width::kInt2), 63).Bytes(), 24000u);
}

TEST(Estimate, FirstPageIsFp16WhateverThePlan) {
  const WorkerHello hello = TwoLayers();
  // 24000 of rings + 16000 + 8000 of sinks
  EXPECT_EQ(CacheDemand(hello, All(Width::kInt2, Width::kInt2), 64).Bytes(), 48000u);
  EXPECT_EQ(CacheDemand(hello, All(Width::kInt2, Width::kInt2), 127).Bytes(), 48000u);
}

TEST(Estimate, PagesBehindTheFirstAtTheirWidths) {
  const WorkerHello hello = TwoLayers();
  // + 2 pages of each layer: INT4 keys (2000, 1000), INT2 values (1100, 600)
  EXPECT_EQ(CacheDemand(hello, All(Width::kInt4, Width::kInt2), 200).Bytes(), 48000u + 2 * (2000 + 1000 + 1100 + 600));
  // Layers of their own widths: layer 0 INT8/FP16, layer 1 INT2/INT4.
  EXPECT_EQ(CacheDemand(hello, {{Width::kInt8, Width::kFp16}, {Width::kInt2, Width::kInt4}}, 128).Bytes(),
            48000u + 4000 + 8000 + 500 + 1200);
}

TEST(Estimate, LayersThatInheritTakeNothing) {
  const WorkerHello hello = TwoLayers();
  CachePlan plan{.follow_tiers = false, .layers = std::vector<LayerAction>(2)};
  plan.layers[0].keys = plan.layers[0].values = Width::kInt8;
  plan.layers[1].kind = LayerAction::Kind::kInherit;
  // Layer 0's ring, its sink pages, one page of each.
  EXPECT_EQ(CacheDemand(hello, WidthsOf(plan, hello, {}), 150).Bytes(), 16000u + 8000 + 8000 + 4000 + 4100);
}

TEST(Estimate, EvictedTokensAreStagedAndNeverHeld) {
  WorkerHello hello = TwoLayers();
  hello.staging_bytes_per_token = 3 * kMiB;
  const auto widths = All(Width::kInt4, Width::kInt4);
  // 1000 tokens, of which 896 go: one page row beside the rings, in a slab for each of six page sizes at most.
  EXPECT_EQ(PeakFootprint(hello, widths, 1000, 10, 896),
            CacheDemand(hello, widths, 104).Footprint() + 3000 * kMiB);
  hello.staging_bytes_per_token = 0;
  EXPECT_EQ(PeakFootprint(hello, widths, 1000, 100, 896), CacheDemand(hello, widths, 203).Footprint());
}

TEST(Estimate, NoSinkPages) {
  WorkerHello hello = TwoLayers();
  hello.sink_pages = 0;
  EXPECT_EQ(CacheDemand(hello, All(Width::kInt2, Width::kInt2), 64).Bytes(), 24000u + 1000 + 1100 + 500 + 600);
}

TEST(Estimate, StagingUpToItsMost) {
  WorkerHello hello = TwoLayers();
  EXPECT_EQ(StagingBytes(hello, 300), 3000u);
  hello.staging_bytes_max = 2000;
  EXPECT_EQ(StagingBytes(hello, 300), 2000u);
}

TEST(Estimate, TheLastTokenIsNeverFed) {
  EXPECT_EQ(TokensAtEnd(10, 1), 10u);
  EXPECT_EQ(TokensAtEnd(10, 55), 64u);
  EXPECT_EQ(TokensAtEnd(10, 0), 10u);
}

TEST(Estimate, PeakIsThePrefillOfALongPromptOrTheEndOfALongAnswer) {
  WorkerHello hello = TwoLayers();
  hello.staging_bytes_per_token = 5 * kMiB;
  // 64 tokens: rings and sinks of 16000, 8000 and 4000 bytes: one slab each.
  const uint64_t end = CacheDemand(hello, All(Width::kFp16, Width::kFp16), 64).Footprint();
  EXPECT_EQ(end, 2 * 3 * kMiB);  // 16000 | 8000 (ring of layer 1, pages of layer 0) | 4000
  EXPECT_EQ(PeakFootprint(hello, All(Width::kFp16, Width::kFp16), 64, 1, 0), end + 64 * 5 * kMiB);
  hello.staging_bytes_per_token = 0;
  EXPECT_EQ(PeakFootprint(hello, All(Width::kFp16, Width::kFp16), 1, 64, 0), end);
}

TEST(Estimate, AutoTakesTheTiersInForce) {
  const WorkerHello hello = TwoLayers();
  CachePlan plan;
  WorkerStatus status;
  EXPECT_EQ(WidthsOf(plan, hello, status), All(Width::kFp16, Width::kFp16));
  status.key_bits = {8, 2};
  status.value_bits = {4, 16};
  EXPECT_EQ(WidthsOf(plan, hello, status),
            (std::vector<LayerWidths>{{Width::kInt8, Width::kInt4}, {Width::kInt2, Width::kFp16}}));
  status.key_bits = {3, 2};  // no width: counted as the widest
  EXPECT_EQ(WidthsOf(plan, hello, status)[0].keys, Width::kFp16);
  EXPECT_EQ(WidestWidthsOf(plan, hello), All(Width::kFp16, Width::kFp16));
}

TEST(Estimate, FixedPlansTakeTheirOwn) {
  const WorkerHello hello = TwoLayers();
  CachePlan plan{.follow_tiers = false, .layers = {}};
  LayerAction action;
  action.keys = Width::kInt4;
  action.values = Width::kInt2;
  plan.layers = {action, action};
  WorkerStatus status;
  status.key_bits = status.value_bits = {16, 16};
  EXPECT_EQ(WidthsOf(plan, hello, status), All(Width::kInt4, Width::kInt2));
  EXPECT_EQ(WidestWidthsOf(plan, hello), All(Width::kInt4, Width::kInt2));
}

TEST(Estimate, AWidenedPlanIsReservedForAtTheGuardInForce) {
  const WorkerHello hello = TwoLayers();
  CachePlan plan;
  plan.follow_tiers = false;
  plan.layers.resize(2);
  for (LayerAction& action : plan.layers) action.keys = action.values = Width::kInt4;
  WorkerStatus status;
  status.key_bits = status.value_bits = {2, 2};
  status.guard_bits = {8, 2};
  EXPECT_EQ(WidthsOf(plan, hello, status), All(Width::kInt4, Width::kInt4)) << "not guarded";
  plan.widen = true;
  EXPECT_EQ(WidthsOf(plan, hello, status), (std::vector<LayerWidths>{{Width::kInt8, Width::kInt8}, {Width::kInt4, Width::kInt4}}));
  EXPECT_EQ(WidthsOf(plan, hello, {}), All(Width::kInt4, Width::kInt4)) << "nothing was measured yet";
  EXPECT_EQ(NarrowestWidthsOf(plan, hello), All(Width::kInt4, Width::kInt4));
  EXPECT_EQ(WidestWidthsOf(plan, hello), All(Width::kFp16, Width::kFp16));
  plan.layers[1].kind = LayerAction::Kind::kInherit;
  EXPECT_FALSE(WidestWidthsOf(plan, hello)[1].holds);
  EXPECT_TRUE(WidestWidthsOf(plan, hello)[0].holds);
}

}  // namespace
}  // namespace stria
