// What whole sequences take, by arithmetic, for the shape of SmolLM2-135M.
#include "worker/cache_layout.h"

#include "gtest/gtest.h"

namespace stria {
namespace {

class SmolLm2Layout : public testing::Test {
 protected:
  static CacheLayout Make(uint32_t sink_pages) {
    ModelConfig model;
    model.layers = 30;
    model.hidden = 576;
    model.heads = 9;
    model.kv_heads = 3;
    model.head_dim = 64;
    return *CacheLayout::Create(model, sink_pages);
  }

  // Bytes of one sequence of whole pages: its pages and its rings.
  static double Bytes(const CacheLayout& layout, Width width, uint32_t tokens) {
    CachePlan plan;
    plan.follow_tiers = false;
    LayerAction action;
    action.keys = action.values = width;
    plan.layers.assign(layout.layers(), action);
    DemandList list;
    layout.AddPages(plan, {}, 0, tokens / kPageTokens, list);
    layout.AddRings(plan, list);
    double bytes = 0;
    for (const PageDemand& demand : list.demands()) bytes += double(demand.page_bytes) * demand.pages;
    return bytes;
  }
};

TEST_F(SmolLm2Layout, Fp16IsTwoBytesAnElementAndTheRing) {
  const CacheLayout layout = Make(1);
  EXPECT_EQ(Bytes(layout, Width::kFp16, 2048), 2.0 * layout.layers() * layout.layer_elements() * (2048 + kPageTokens));
}

TEST_F(SmolLm2Layout, Int4PagesAreAtLeast3AndAHalfTimesSmaller) {
  const CacheLayout layout = Make(1);
  EXPECT_GE(layout.key_page_bytes(0, Width::kFp16), 3.5 * layout.key_page_bytes(0, Width::kInt4));
  EXPECT_GE(layout.value_page_bytes(0, Width::kFp16), 3.5 * layout.value_page_bytes(0, Width::kInt4));
}

// With the defaults: an FP16 first page and the FP16 ring.
TEST_F(SmolLm2Layout, Int4SequencesAreSmaller) {
  const CacheLayout layout = Make(1);
  EXPECT_GE(Bytes(layout, Width::kFp16, 7168) / Bytes(layout, Width::kInt4, 7168), 3.3);
  EXPECT_GE(Bytes(layout, Width::kFp16, 2048) / Bytes(layout, Width::kInt4, 2048), 2.9);
}

}  // namespace
}  // namespace stria
