#include "scheduler/placement.h"

#include <vector>

#include <gtest/gtest.h>

#include "scheduler/estimate.h"

namespace stria {
namespace {

constexpr uint32_t kTokens = 64 * 300;

WorkerHello Hello(const std::string& name) {
  WorkerHello hello;
  hello.worker = name;
  hello.max_context = 100000;
  hello.max_sequences = 10;
  hello.staging_bytes_per_token = 10;
  hello.layers = {LayerBytes{.key_page = {1000, 2000, 4000, 8000}, .value_page = {1100, 2100, 4100, 8000}, .ring = 16000}};
  return hello;
}

class PlacementTest : public testing::Test {
 protected:
  // With room for `most` sequences like the demand's.
  Worker& Add(WorkerHello hello, uint64_t most) {
    MemoryDemand all;
    for (uint64_t i = 0; i < most; ++i) all += One(hello);
    hello.pool_bytes = all.Footprint() + StagingBytes(hello, kTokens);
    fleet_.Register(hello, MonotonicTime());
    return *fleet_.Find(hello.worker);
  }
  MemoryDemand One(const WorkerHello& hello) const { return CacheDemand(hello, WidestWidthsOf(plan_, hello), kTokens); }
  void Give(Worker& worker) {
    worker.reserved += One(worker.hello);
    ++worker.sequences;
  }
  std::string Chosen() const {
    const auto placement = Place(fleet_, demand_, affinity_);
    return placement ? placement->worker : "";
  }

  CachePlan plan_;
  Demand demand_{.plan = &plan_, .prompt_tokens = kTokens, .expected_tokens = 1, .max_new_tokens = 1};
  Fleet fleet_{0};
  PrefixAffinity affinity_;
};

// Reservations count every page of every sequence; what they share is room for one more.
TEST_F(PlacementTest, SharedPagesAreHeldOnce) {
  Worker& worker = Add(Hello("w"), 2);
  worker.hello.pool_bytes -= 1;
  EXPECT_EQ(Chosen(), "w");
  Give(worker);
  EXPECT_EQ(Chosen(), "");
  worker.status.shared_bytes = kPoolSlabBytes - 1;  // nothing in whole slabs
  EXPECT_EQ(Chosen(), "");
  worker.status.shared_bytes = kPoolSlabBytes;
  EXPECT_EQ(Chosen(), "w");
}

TEST_F(PlacementTest, TheLongestPrefixDrawsUnlessItsWorkerIsMuchFuller) {
  Worker &a = Add(Hello("a"), 8), &b = Add(Hello("b"), 8), &c = Add(Hello("c"), 8);
  PrefixChain chain("", plan_, "");
  chain.Append(std::vector<int32_t>(kTokens, 1));
  demand_.prefix = chain.keys();
  EXPECT_EQ(Chosen(), "a");
  affinity_.Remember("b", std::span(chain.keys()).first(1));
  affinity_.Remember("c", std::span(chain.keys()).first(2));
  EXPECT_EQ(Chosen(), "c");
  Give(c);
  EXPECT_EQ(Chosen(), "c");  // an eighth fuller
  Give(c);
  Give(c);
  EXPECT_EQ(Chosen(), "b");  // three eighths
  Give(a);
  Give(b);
  EXPECT_EQ(Chosen(), "c");  // two eighths
  c.status.draining = true;
  EXPECT_EQ(Chosen(), "b");
  demand_.prefix = {};
  Give(b);
  EXPECT_EQ(Chosen(), "a");
}

}  // namespace
}  // namespace stria
