#include "scheduler/fair_queue.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "base/random.h"

namespace stria {
namespace {

// Serves the queue to its end; each takes `tokens` generated ones. Gives the order.
std::vector<uint64_t> Serve(FairQueue& queue, const std::map<uint64_t, std::string>& tenants, uint64_t tokens, size_t most = 1000) {
  std::vector<uint64_t> order;
  while (order.size() < most) {
    const auto id = queue.First();
    if (!id) break;
    queue.Remove(*id);
    queue.ChargePrompt(tenants.at(*id), 10);
    queue.ChargeGenerated(tenants.at(*id), tokens);
    order.push_back(*id);
  }
  return order;
}

TEST(FairQueue, PriorityThenAheadThenArrival) {
  FairQueue queue(10, 10);
  queue.Add(1, 0, "", false);
  queue.Add(2, 0, "", false);
  queue.Add(3, -1, "", false);
  queue.Add(4, 5, "", true);
  queue.Add(5, 0, "", true);
  EXPECT_EQ(Serve(queue, {{1, ""}, {2, ""}, {3, ""}, {4, ""}, {5, ""}}, 1), (std::vector<uint64_t>{3, 5, 1, 2, 4}));
  EXPECT_EQ(queue.size(), 0u);
}

TEST(FairQueue, MovingAheadAndPassing) {
  FairQueue queue(10, 10);
  for (uint64_t id = 1; id <= 4; ++id) queue.Add(id, 0, id % 2 ? "a" : "b", false);
  queue.MoveAhead(3);
  queue.MoveAhead(3);
  EXPECT_EQ(queue.First(), 3u);
  EXPECT_EQ(queue.First({3}), 1u);
  EXPECT_EQ(queue.First({3, 1}), 2u);
  EXPECT_EQ(queue.First({3, 1, 2, 4}), std::nullopt);
  queue.Remove(3);
  queue.Remove(77);
  EXPECT_EQ(queue.First(), 1u);
}

TEST(FairQueue, TenantsTakeTurnsWhateverTheyQueue) {
  FairQueue queue(1000, 1000);
  std::map<uint64_t, std::string> tenants;
  for (uint64_t id = 1; id <= 100; ++id) {  // 90 of a flood, then 10 of another
    tenants[id] = id <= 90 ? "flood" : "other";
    queue.Add(id, 0, tenants[id], false);
  }
  const std::vector<uint64_t> order = Serve(queue, tenants, 50, 20);
  int other = 0;
  for (const uint64_t id : order) other += tenants[id] == "other";
  EXPECT_EQ(other, 10) << "half of what was served";
}

TEST(FairQueue, SharesWeighTokensNotRequests) {
  FairQueue queue(10000, 10000);
  queue.SetShare("three", 3);
  std::map<uint64_t, std::string> tenants;
  for (uint64_t id = 1; id <= 4000; ++id) {
    tenants[id] = id % 2 ? "one" : "three";
    queue.Add(id, 0, tenants[id], false);
  }
  std::map<std::string, double> served;
  for (int i = 0; i < 1500; ++i) {
    const uint64_t id = *queue.First();
    const std::string& tenant = tenants[id];
    queue.Remove(id);
    const uint64_t tokens = static_cast<uint64_t>(Uniform(5, 0, id) * (tenant == "one" ? 400 : 100));  // of different length, too
    queue.ChargeGenerated(tenant, tokens);
    served[tenant] += static_cast<double>(tokens);
  }
  EXPECT_NEAR(served["three"] / served["one"], 3, 0.1);
}

TEST(FairQueue, IdlingSavesNothingUp) {
  FairQueue queue(1000, 1000);
  std::map<uint64_t, std::string> tenants;
  for (uint64_t id = 1; id <= 40; ++id) queue.Add(id, 0, tenants[id] = "busy", false);
  Serve(queue, tenants, 100, 20);
  for (uint64_t id = 41; id <= 80; ++id) queue.Add(id, 0, tenants[id] = "idle", false);
  const std::vector<uint64_t> order = Serve(queue, tenants, 100, 10);
  int busy = 0;
  for (const uint64_t id : order) busy += tenants[id] == "busy";
  EXPECT_EQ(busy, 5);
}

TEST(FairQueue, BoundedInAllAndByTenant) {
  FairQueue queue(4, 3);
  EXPECT_TRUE(queue.HasRoom("a", 3).ok());
  EXPECT_EQ(queue.HasRoom("a", 4).code(), absl::StatusCode::kResourceExhausted);
  for (uint64_t id = 1; id <= 3; ++id) queue.Add(id, 0, "a", false);
  EXPECT_TRUE(absl::StrContains(queue.HasRoom("a", 1).message(), "3 sequences of this API key"));
  EXPECT_TRUE(queue.HasRoom("b", 1).ok()) << "one key leaves room for others";
  EXPECT_TRUE(absl::StrContains(queue.HasRoom("b", 2).message(), "holds 4"));
  queue.Remove(1);
  EXPECT_TRUE(queue.HasRoom("a", 1).ok());
}

}  // namespace
}  // namespace stria
