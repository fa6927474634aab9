// The brain against simulated workers: what fits, what is over-committed, and that all of it ends.
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "scheduler/simulation.h"

namespace stria {
namespace {

TEST(SchedulerMemory, WhatNeverFitsIsRefusedWithTheNumbers) {
  Simulation sim;
  sim.AddWorker({.pool_bytes = 16 * kMiB});
  // 4 layers · 65536 bytes a page of keys and values at FP16: 256 KiB a page, 64 pages to the pool of 8 slabs, rings beside.
  const absl::Status refused = sim.brain.Submit({Request(64 * 100, 1, Fixed(Width::kFp16))}, sim.now).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(refused.message(), "16777216")) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "6400 tokens in the prompt")) << refused;
  // 100 pages · 4 layers · 2 of 32 KiB = 25 MiB → 13 slabs of 2 MiB, a slab of rings, 6400 · 1024 of staging.
  EXPECT_TRUE(absl::StrContains(refused.message(), absl::StrCat(14 * 2 * kMiB + 6400 * 1024, " bytes of cache"))) << refused;
  // The same at INT2 does: 3.1 MiB of pages.
  EXPECT_TRUE(sim.brain.Submit({Request(64 * 100, 1, Fixed(Width::kInt2))}, sim.now).ok());
  const absl::Status too_long = sim.brain.Submit({Request(8000, 200, Fixed(Width::kInt2))}, sim.now).status();
  EXPECT_TRUE(absl::StrContains(too_long.message(), "8192")) << too_long;
  EXPECT_TRUE(absl::StrContains(too_long.message(), "8200")) << too_long;
}

// Two requests that each take 60 % of the pool at FP16 were admitted while the tiers were narrow.
TEST(SchedulerMemory, TwoOfSixtyPercentBothFinish) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker({.pool_bytes = 32 * kMiB});
  worker.SetTiers(Width::kInt2);
  sim.brain.OnStatus(worker.Status(), sim.now);
  const SequenceRequest request = Request(64, 64 * 75);  // 75 pages · 256 KiB = 19 MiB of 32
  const uint64_t a = sim.Submit(request), b = sim.Submit(request);
  for (int i = 0; i < 50; ++i) sim.Step();
  EXPECT_EQ(worker.sequences(), 2u) << "at INT2 both fit";
  worker.SetTiers(Width::kFp16);
  ASSERT_TRUE(sim.RunUntilAllEnd({a, b}));
  sim.ExpectWhole(worker, a, request);
  sim.ExpectWhole(worker, b, request);
  EXPECT_EQ(worker.preemptions(), 1u) << "the second waits for the first, then has what it needs";
  EXPECT_EQ(worker.used_bytes(), 0u);
}

// The guard widens what was admitted at the plan's widths, and is reserved for from then on.
TEST(SchedulerMemory, WidenedPlansOvercommitAndAllFinish) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker({.pool_bytes = 32 * kMiB});
  sim.brain.OnStatus(worker.Status(), sim.now);
  SequenceRequest request = Request(64, 64 * 75);
  request.plan.follow_tiers = false;
  request.plan.layers.resize(4);
  for (LayerAction& action : request.plan.layers) action.keys = action.values = Width::kInt2;
  request.plan.widen = true;
  const uint64_t a = sim.Submit(request), b = sim.Submit(request);
  for (int i = 0; i < 50; ++i) sim.Step();
  EXPECT_EQ(worker.sequences(), 2u) << "at the plan's widths both fit";
  const uint64_t planned = sim.brain.stats().reserved_bytes;
  worker.SetGuard(Width::kFp16);
  sim.brain.OnStatus(worker.Status(), sim.now);
  EXPECT_GE(sim.brain.stats().reserved_bytes, 4 * planned);
  ASSERT_TRUE(sim.RunUntilAllEnd({a, b}));
  sim.ExpectWhole(worker, a, request);
  sim.ExpectWhole(worker, b, request);
  EXPECT_EQ(worker.preemptions(), 1u);
  EXPECT_EQ(worker.used_bytes(), 0u);
}

TEST(SchedulerMemory, ManyThatOvercommitAllFinish) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker({.pool_bytes = 32 * kMiB});
  worker.SetTiers(Width::kInt2);
  sim.brain.OnStatus(worker.Status(), sim.now);
  std::vector<uint64_t> ids;
  std::vector<SequenceRequest> requests;
  for (uint32_t i = 0; i < 12; ++i) {
    requests.push_back(Request(64 + i, 64 * (10 + 5 * i)));
    ids.push_back(sim.Submit(requests.back()));
  }
  sim.Step();
  worker.SetTiers(Width::kFp16);
  ASSERT_TRUE(sim.RunUntilAllEnd(ids));
  for (size_t i = 0; i < ids.size(); ++i) sim.ExpectWhole(worker, ids[i], requests[i]);
  EXPECT_LE(worker.preemptions(), 2 * ids.size()) << "at most once at the widths in force and once at FP16 each";
}

TEST(SchedulerMemory, AnAnswerWithoutALimitTakesWhatThePoolHolds) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker({.pool_bytes = 8 * kMiB});
  SequenceRequest request = Request(10, 0);
  const uint64_t id = sim.Submit(request);
  ASSERT_TRUE(sim.RunUntilAllEnd({id}));
  EXPECT_EQ(sim.heard[id].finish, FinishReason::kLength);
  EXPECT_EQ(worker.preemptions(), 0u);
  // 3 slabs of pages beside one of rings: 64 pages to a slab, 8 to a page of all layers: 24 whole pages, and 63 tokens of tail.
  EXPECT_EQ(sim.heard[id].tokens.size(), 24u * 64 + 63 - 10 + 1);
  // A prompt that leaves no room for a limit of its own still answers up to the context.
  Simulation wide;
  FakeWorker& large = wide.AddWorker({.max_context = 100});
  const uint64_t other = wide.Submit(Request(60, 0));
  ASSERT_TRUE(wide.RunUntilAllEnd({other}));
  EXPECT_EQ(wide.heard[other].tokens.size(), 40u);
  EXPECT_EQ(large.preemptions(), 0u);
}

TEST(SchedulerMemory, EvictedTokensTakeStagingAndNoPages) {
  Simulation sim;
  // A slab of rings, and three of 64 pages: 24 rows of 8, or 1,536 tokens without staging.
  FakeWorker& worker = sim.AddWorker({.pool_bytes = 8 * kMiB});
  SequenceRequest request = Request(2000, 20, Fixed(Width::kFp16));
  EXPECT_TRUE(absl::IsInvalidArgument(sim.brain.Submit({request}, sim.now).status()));
  request.plan.keep_tokens = 200;  // 1,792 go, 208 stay: beside 2 MB of staging a slab of pages is enough
  const uint64_t id = sim.Submit(request);
  EXPECT_EQ(sim.brain.stats().reserved_bytes, 4 * kMiB + 2000 * 1024);
  ASSERT_TRUE(sim.RunUntilAllEnd({id}));
  sim.ExpectWhole(worker, id, request);
  EXPECT_EQ(worker.starts(), 1u);
  EXPECT_EQ(sim.brain.stats().reserved_bytes, 0u);
}

TEST(SchedulerMemory, ALargeSequenceIsNotStarvedAndOtherWorkersGoOn) {
  Simulation sim;
  FakeWorker& a = sim.AddWorker({.name = "a", .pool_bytes = 16 * kMiB});
  FakeWorker& b = sim.AddWorker({.name = "b", .pool_bytes = 16 * kMiB});
  const SequenceRequest small = Request(320, 320, Fixed(Width::kFp16));  // 2.5 MiB with its slabs
  const SequenceRequest large = Request(1500, 1500, Fixed(Width::kFp16));
  std::vector<uint64_t> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(sim.Submit(small));
  const uint64_t big = sim.Submit(large);
  for (int i = 0; i < 3000 && sim.heard[big].starts == 0; ++i) {  // small ones come without end
    if (i % 30 == 0) ids.push_back(sim.Submit(small));
    sim.Step();
  }
  EXPECT_EQ(sim.heard[big].starts, 1);
  uint64_t overtook = 0;
  for (const uint64_t id : sim.order_of_starts) overtook += id > big;
  EXPECT_GT(overtook, 0u) << "on the worker that is not kept for it";
  ids.push_back(big);
  ASSERT_TRUE(sim.RunUntilAllEnd(ids));
  EXPECT_EQ(a.preemptions() + b.preemptions(), 0u);
}

TEST(SchedulerMemory, WhatNoWorkerHereCouldHoldWaitsAndBlocksNobody) {
  Simulation sim;
  sim.AddWorker({.name = "large", .pool_bytes = 64 * kMiB});
  FakeWorker& small = sim.AddWorker({.name = "small", .pool_bytes = 8 * kMiB});
  const SequenceRequest large = Request(3000, 300, Fixed(Width::kFp16)), other = Request(10, 50);
  const uint64_t id = sim.Submit(large);
  for (int i = 0; i < 50; ++i) sim.Step();
  sim.workers.erase("large");
  ASSERT_TRUE(sim.RunUntil([&] { return sim.brain.stats().waiting == 1; }, 300));
  const uint64_t next = sim.Submit(other);
  ASSERT_TRUE(sim.RunUntilAllEnd({next}));
  sim.ExpectWhole(small, next, other);
  EXPECT_EQ(sim.heard[id].ends, 0);
  FakeWorker& back = sim.AddWorker({.name = "large", .incarnation = 2, .pool_bytes = 64 * kMiB});
  ASSERT_TRUE(sim.RunUntilAllEnd({id}));
  sim.ExpectWhole(back, id, large);
}

TEST(SchedulerMemory, WhatAWorkerReportsCorrectsTheEstimate) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker({.pool_bytes = 16 * kMiB});
  WorkerStatus status = worker.Status();
  status.used_bytes = 13 * kMiB;  // something holds pages that nobody here set aside
  sim.brain.OnStatus(status, sim.now);
  const SequenceRequest request = Request(320, 320, Fixed(Width::kFp16));
  const uint64_t first = sim.Submit(request), second = sim.Submit(request);
  EXPECT_EQ(worker.starts(), 1u) << "an idle worker takes one";
  EXPECT_EQ(sim.brain.stats().waiting, 1u);
  ASSERT_TRUE(sim.RunUntilAllEnd({first, second}));
}

// Sequences that run out of pages, workers that die, leave and come back, tiers that flip, clients that go, links that lose and double:
// whatever the order, all ends well and in bounded work.
TEST(SchedulerMemory, NoScheduleLivelocks) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SchedulerOptions options;
    options.max_losses = 1000;
    options.queue_timeout = std::chrono::hours(1);
    Simulation sim(options);
    sim.seed = seed;
    sim.loss = sim.doubling = seed % 3 == 0 ? 0.05 : 0;
    uint64_t draws = 0;
    const auto draw = [&](uint64_t below) { return static_cast<uint64_t>(Uniform(seed, 9, draws++) * static_cast<double>(below)); };
    std::map<std::string, FakeWorkerOptions> fleet;
    for (uint64_t i = 0; i <= seed % 3; ++i) {
      const std::string name = absl::StrCat("w", i);
      fleet[name] = {.name = name, .pool_bytes = (12 + 4 * draw(6)) * kMiB, .max_sequences = 12};
      sim.AddWorker(fleet[name]).SetTiers(Width::kInt2);
      sim.brain.OnStatus(sim.workers.at(name)->Status(), sim.now);
    }
    std::map<uint64_t, SequenceRequest> requests;
    std::set<uint64_t> cancelled;
    uint64_t deaths = 0;
    const auto some_worker = [&]() -> FakeWorker& { return *sim.workers.at(absl::StrCat("w", draw(fleet.size()))); };
    const auto step = [&](bool quiet) {
      if (!quiet && requests.size() < 30 && draw(8) == 0) {
        const Width widths[] = {Width::kInt2, Width::kInt4, Width::kInt8, Width::kFp16};
        SequenceRequest request = Request(1 + draw(600), 1 + draw(700), draw(3) ? CachePlan{} : Fixed(widths[draw(4)]));
        request.prompt.front() = static_cast<int32_t>(draw(900));
        request.priority = static_cast<int32_t>(draw(3)) - 1;
        request.tenant = absl::StrCat("t", draw(3));
        const auto ids = sim.brain.Submit({request}, sim.now);
        if (ids.ok()) requests[ids->front()] = request;
        sim.Exchange();
      }
      if (!quiet && draw(60) == 0) some_worker().SetTiers(draw(2) ? Width::kFp16 : Width::kInt2);
      if (!quiet && draw(200) == 0 && !requests.empty()) {
        const uint64_t id = std::next(requests.begin(), static_cast<int64_t>(draw(requests.size())))->first;
        sim.brain.Cancel(id, sim.now);
        cancelled.insert(id);
      }
      if (!quiet && draw(150) == 0) {
        FakeWorkerOptions& again = fleet[absl::StrCat("w", draw(fleet.size()))];
        FakeWorker& leaves = *sim.workers.at(again.name);
        if (draw(2)) {
          leaves.Drain();
          for (int i = 0; i < 30; ++i) sim.Step();
          leaves.HandOver();
          for (int i = 0; i < 30; ++i) sim.Step();
        }
        ++again.incarnation;
        ++deaths;
        sim.AddWorker(again);
      }
      sim.Step();
    };
    for (int i = 0; i < 600; ++i) step(/*quiet=*/false);
    ASSERT_GE(requests.size(), 20u);
    int steps = 0;
    const auto all_ended = [&] {
      return std::all_of(requests.begin(), requests.end(), [&](const auto& entry) { return sim.heard[entry.first].ends == 1; });
    };
    for (; steps < 30000 && !all_ended(); ++steps) step(/*quiet=*/true);
    ASSERT_TRUE(all_ended()) << "seed " << seed << ": " << sim.brain.stats().waiting << " wait, " << sim.brain.stats().running << " run";
    for (const auto& [id, request] : requests) {
      const Heard& heard = sim.heard[id];
      ASSERT_LE(heard.tokens.size(), request.max_new_tokens);
      for (uint32_t i = 0; i < heard.tokens.size(); ++i) {
        ASSERT_EQ(heard.tokens[i], FakeWorker({}).TokenAt(request.prompt.front(), i)) << "seed " << seed << " sequence " << id;
      }
      if (cancelled.contains(id) || request.plan.follow_tiers) continue;  // one that follows may outgrow the pool when tiers widen
      EXPECT_EQ(heard.tokens.size(), request.max_new_tokens) << "seed " << seed << " sequence " << id << ": " << heard.status;
    }
    EXPECT_LE(sim.brain.stats().preemptions, 3 * requests.size()) << "seed " << seed;
    for (int i = 0; i < 300; ++i) step(/*quiet=*/true);
    EXPECT_EQ(sim.brain.stats().waiting + sim.brain.stats().running, 0u);
    EXPECT_EQ(sim.brain.stats().reserved_bytes, 0u);
    for (const auto& [name, worker] : sim.workers) EXPECT_EQ(worker->used_bytes() + worker->remembered(), 0u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace stria
