// The brain against simulated workers: which of them gets what, and what happens when they, or messages, are lost.
#include "absl/strings/match.h"
#include "scheduler/simulation.h"

namespace stria {
namespace {

TEST(SchedulerWorkers, OnlyWorkersOfThePacksModelAreTaken) {
  Fleet fleet(/*vocab=*/0, "abc");
  WorkerHello hello = FakeWorker({}).Hello();
  hello.model = "abc";
  EXPECT_TRUE(fleet.Judge(hello).ok());
  hello.model = "abd";
  EXPECT_EQ(fleet.Judge(hello).message(), "worker w0: serves model abd, the pack is for abc");
}

TEST(SchedulerWorkers, ForcedTokensStartAgainFromThePrompt) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker({.pool_bytes = 32 * kMiB});
  worker.SetTiers(Width::kInt2);
  sim.brain.OnStatus(worker.Status(), sim.now);
  SequenceRequest request = Request(1, 64 * 75);
  for (uint32_t i = 0; i < request.max_new_tokens; ++i) request.forced.push_back(static_cast<int32_t>(i % 500));
  const uint64_t a = sim.Submit(request), b = sim.Submit(request);
  for (int i = 0; i < 50; ++i) sim.Step();
  worker.SetTiers(Width::kFp16);
  ASSERT_TRUE(sim.RunUntilAllEnd({a, b}));
  EXPECT_GE(worker.preemptions(), 1u);
  EXPECT_EQ(sim.heard[a].tokens, request.forced);
  EXPECT_EQ(sim.heard[b].tokens, request.forced);
}

TEST(SchedulerWorkers, LossAndDoublingDelayAndNeverChange) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Simulation sim;
    FakeWorker& worker = sim.AddWorker();
    sim.seed = seed;
    sim.loss = 0.2;
    sim.doubling = 0.2;
    std::vector<uint64_t> ids;
    std::vector<SequenceRequest> requests;
    for (uint32_t i = 0; i < 8; ++i) {
      requests.push_back(Request(5 + i, 60 + 10 * i));
      requests.back().prompt.front() = static_cast<int32_t>(i);
      ids.push_back(sim.Submit(requests.back()));
    }
    ASSERT_TRUE(sim.RunUntilAllEnd(ids)) << seed;
    for (size_t i = 0; i < ids.size(); ++i) sim.ExpectWhole(worker, ids[i], requests[i]);
    ASSERT_TRUE(sim.RunUntil([&] { return worker.remembered() == 0; })) << "every end is acknowledged in the end";
    EXPECT_GT(sim.brain.stats().gaps + sim.brain.stats().duplicates, 0u);
    EXPECT_EQ(sim.brain.stats().reserved_bytes, 0u);
  }
}

TEST(SchedulerWorkers, CancelGetsThroughALossyLink) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Simulation sim;
    FakeWorker& worker = sim.AddWorker();
    sim.seed = seed;
    sim.loss = 0.3;
    const uint64_t id = sim.Submit(Request(10, 8000));
    for (int i = 0; i < 20; ++i) sim.Step();
    sim.brain.Cancel(id, sim.now);
    sim.Exchange();
    ASSERT_TRUE(sim.RunUntil([&] { return sim.heard[id].ends == 1 && worker.used_bytes() == 0 && worker.remembered() == 0; })) << seed;
    EXPECT_LE(sim.cancels, 12) << "no storm";
  }
}

TEST(SchedulerWorkers, WhatNobodyCanGoOnWithEndsAtTheQueueTimeout) {
  Simulation sim;
  sim.AddWorker();
  const uint64_t id = sim.Submit(Request(10, 4000));
  for (int i = 0; i < 10; ++i) sim.Step();
  sim.workers.clear();  // killed
  ASSERT_TRUE(sim.RunUntil([&] { return !sim.brain.ready(); }, 150)) << "within three seconds: nobody is connected";
  EXPECT_EQ(sim.heard[id].ends, 0) << "somebody may come";
  ASSERT_TRUE(sim.RunUntil([&] { return sim.heard[id].ends == 1; }, 3100));
  EXPECT_EQ(sim.heard[id].status.code(), absl::StatusCode::kAborted);
  FakeWorker& other = sim.AddWorker({.incarnation = 2});
  EXPECT_TRUE(sim.brain.ready());
  const SequenceRequest request = Request(10, 50);
  const uint64_t next = sim.Submit(request);
  ASSERT_TRUE(sim.RunUntilAllEnd({next}));
  sim.ExpectWhole(other, next, request);
}

TEST(SchedulerWorkers, ALostWorkersStreamsGoOnElsewhere) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Simulation sim;
    sim.seed = seed;
    sim.loss = sim.doubling = seed % 2 == 0 ? 0.1 : 0;
    FakeWorker& other = sim.AddWorker({.name = "w1"});
    sim.AddWorker({.name = "w0"});
    std::vector<uint64_t> ids;
    std::vector<SequenceRequest> requests;
    for (uint32_t i = 0; i < 8; ++i) {
      requests.push_back(Request(5 + i, 400 + 10 * i));
      requests.back().prompt.front() = static_cast<int32_t>(i);
      ids.push_back(sim.Submit(requests.back()));
    }
    for (uint64_t i = 0; i < 20 * seed; ++i) sim.Step();
    EXPECT_GT(sim.workers.at("w0")->starts(), 0u);
    sim.workers.erase("w0");  // killed
    ASSERT_TRUE(sim.RunUntilAllEnd(ids)) << seed;
    for (size_t i = 0; i < ids.size(); ++i) sim.ExpectWhole(other, ids[i], requests[i]);
    EXPECT_GT(sim.brain.stats().failovers, 0u);
    EXPECT_EQ(sim.brain.stats().workers_lost, 1u);
    ASSERT_TRUE(sim.RunUntil([&] { return other.remembered() == 0; }));
    EXPECT_EQ(sim.brain.stats().reserved_bytes, 0u);
  }
}

TEST(SchedulerWorkers, ALoneWorkersStreamsGoOnWhenItIsBack) {
  Simulation sim;
  sim.AddWorker({.max_sequences = 1});
  const SequenceRequest request = Request(10, 300), next = Request(10, 30);
  const uint64_t runs = sim.Submit(request), waits = sim.Submit(next);
  for (int i = 0; i < 100; ++i) sim.Step();
  sim.workers.clear();
  for (int i = 0; i < 500; ++i) sim.Step();  // ten seconds without anybody
  EXPECT_EQ(sim.heard[runs].ends, 0);
  FakeWorker& back = sim.AddWorker({.incarnation = 2, .max_sequences = 1});
  ASSERT_TRUE(sim.RunUntilAllEnd({runs, waits}));
  sim.ExpectWhole(back, runs, request);
  sim.ExpectWhole(back, waits, next);
  EXPECT_EQ(sim.order_of_ends, (std::vector<uint64_t>{runs, waits})) << "what had been running goes first";
}

TEST(SchedulerWorkers, ACancelledSequenceOfALostWorkerJustEnds) {
  Simulation sim;
  sim.AddWorker({.name = "w0"});
  const uint64_t id = sim.Submit(Request(10, 4000));
  for (int i = 0; i < 10; ++i) sim.Step();
  sim.workers.clear();
  sim.brain.Cancel(id, sim.now);
  ASSERT_TRUE(sim.RunUntil([&] { return sim.heard[id].ends == 1; }, 300));
  EXPECT_EQ(sim.heard[id].finish, FinishReason::kCancelled);
  EXPECT_EQ(sim.brain.stats().failovers, 0u);
}

TEST(SchedulerWorkers, ASequenceThatKillsItsWorkersIsGivenUp) {
  Simulation sim;
  sim.AddWorker();
  const uint64_t poison = sim.Submit(Request(10, 4000));
  uint64_t incarnation = 1;
  for (; sim.heard[poison].ends == 0 && incarnation < 10; ++incarnation) {
    for (int i = 0; i < 10; ++i) sim.Step();
    sim.AddWorker({.incarnation = incarnation + 1});  // killed, and started again at once
  }
  EXPECT_EQ(incarnation, 4u);
  EXPECT_EQ(sim.heard[poison].ends, 1);
  EXPECT_EQ(sim.heard[poison].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(sim.heard[poison].status.message(), "3 workers were lost")) << sim.heard[poison].status;
  EXPECT_EQ(sim.brain.stats().failovers, 2u);
}

TEST(SchedulerWorkers, AWorkerThatKeepsDyingIsHeldBackForAWhile) {
  Simulation sim;
  FakeWorker& good = sim.AddWorker({.name = "good"});
  const auto die = [&](uint64_t incarnation) {
    sim.AddWorker({.name = "bad", .incarnation = incarnation});
    std::vector<uint64_t> ids;
    for (int i = 0; i < 4; ++i) ids.push_back(sim.Submit(Request(100, 50)));
    sim.workers.at("bad") = std::make_unique<FakeWorker>(FakeWorkerOptions{.name = "bad", .incarnation = incarnation + 1});
    sim.brain.OnHello(sim.workers.at("bad")->Hello(), sim.now);
    EXPECT_TRUE(sim.RunUntilAllEnd(ids));
  };
  for (uint64_t death = 1; death <= 3; ++death) {
    EXPECT_EQ(sim.brain.stats().held_back, 0u);
    die(2 * death);
  }
  EXPECT_EQ(sim.brain.stats().breaker_trips, 1u);
  EXPECT_EQ(sim.brain.stats().workers_lost, 5u) << "three with sequences; the two that were replaced idle count for nothing";
  FakeWorker& bad = *sim.workers.at("bad");
  EXPECT_TRUE(sim.RunUntil([&] { return sim.brain.stats().held_back == 1; }));
  // Trial: one sequence at a time, then as ever.
  sim.now += seconds(10);
  const uint64_t before = bad.starts();
  std::vector<uint64_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(sim.Submit(Request(640, 60)));
  EXPECT_EQ(bad.starts(), before + 1);
  ASSERT_TRUE(sim.RunUntilAllEnd(ids));
  EXPECT_GT(bad.starts(), before + 1);
  EXPECT_EQ(sim.brain.stats().held_back, 0u);
  EXPECT_EQ(good.remembered() + bad.remembered(), 0u);
}

TEST(SchedulerWorkers, TheLastWorkerIsUsedEvenIfItKeepsFailing) {
  SchedulerOptions options;
  options.max_losses = 100;
  Simulation sim(options);
  sim.AddWorker();
  const SequenceRequest request = Request(10, 300);
  const uint64_t id = sim.Submit(request);
  for (uint64_t incarnation = 2; incarnation < 10; ++incarnation) {
    for (int i = 0; i < 10; ++i) sim.Step();
    sim.AddWorker({.incarnation = incarnation});
  }
  EXPECT_GE(sim.brain.stats().breaker_trips, 1u);
  EXPECT_EQ(sim.workers.at("w0")->sequences(), 1u) << "one at a time";
  ASSERT_TRUE(sim.RunUntilAllEnd({id}));
  sim.ExpectWhole(*sim.workers.at("w0"), id, request);
}

TEST(SchedulerWorkers, AWorkerThatHangsIsLostLater) {
  Simulation sim;
  FakeWorker& hangs = sim.AddWorker({.name = "w0"});
  const SequenceRequest request = Request(10, 2000);
  const uint64_t id = sim.Submit(request);
  for (int i = 0; i < 10; ++i) sim.Step();
  FakeWorker& other = sim.AddWorker({.name = "w1"});
  sim.hung = {"w0"};
  EXPECT_FALSE(sim.RunUntil([&] { return other.starts() > 0; }, 900)) << "a step of 18 s is no death";
  ASSERT_TRUE(sim.RunUntil([&] { return other.starts() > 0; }, 200));
  for (int i = 0; i < 10; ++i) sim.Step();
  sim.hung = {};  // it comes back: what it still does is cancelled
  ASSERT_TRUE(sim.RunUntilAllEnd({id}));
  sim.ExpectWhole(other, id, request);
  ASSERT_TRUE(sim.RunUntil([&] { return hangs.used_bytes() == 0 && hangs.remembered() == 0; }, 300));
}

TEST(SchedulerWorkers, ALeavingWorkersSequencesAreMoved) {
  Simulation sim;
  FakeWorker& leaves = sim.AddWorker({.name = "w0"});
  std::vector<uint64_t> ids;
  const SequenceRequest request = Request(10, 400);
  for (int i = 0; i < 4; ++i) ids.push_back(sim.Submit(request));
  for (int i = 0; i < 100; ++i) sim.Step();
  FakeWorker& other = sim.AddWorker({.name = "w1"});
  leaves.Drain();  // the scheduler hears of it late: what it still sends there comes back
  ids.push_back(sim.Submit(request));
  for (int i = 0; i < 50; ++i) sim.Step();
  EXPECT_EQ(leaves.sequences(), 4u) << "what runs may end";
  leaves.HandOver();
  ASSERT_TRUE(sim.RunUntil([&] { return leaves.remembered() == 0; }, 100)) << "then it may go";
  sim.workers.erase("w0");
  ASSERT_TRUE(sim.RunUntilAllEnd(ids));
  for (const uint64_t id : ids) sim.ExpectWhole(other, id, request);
  EXPECT_GE(sim.brain.stats().moves, 4u);
  EXPECT_EQ(sim.brain.stats().preemptions, 0u);
  EXPECT_EQ(sim.brain.stats().failovers, 0u);
}

TEST(SchedulerWorkers, AShortDisconnectIsNoLoss) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker();
  const SequenceRequest request = Request(10, 300);
  const uint64_t id = sim.Submit(request);
  for (int i = 0; i < 200; ++i) {
    sim.hung = i % 100 < 50 ? std::set<std::string>{"w0"} : std::set<std::string>{};  // a second without a connection, a second with
    if (i % 100 == 10) sim.brain.OnUnreachable("w0", sim.now);
    sim.Step();
  }
  ASSERT_TRUE(sim.RunUntilAllEnd({id}));
  sim.ExpectWhole(worker, id, request);
}

TEST(SchedulerWorkers, AWorkerThatDroppedASequenceIsFoundOut) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker();
  const SequenceRequest request = Request(10, 1000);
  const uint64_t id = sim.Submit(request);
  for (int i = 0; i < 10; ++i) sim.Step();
  worker.Take(SchedulerHello{.incarnation = 999});  // it followed another scheduler for a moment
  ASSERT_TRUE(sim.RunUntilAllEnd({id}));
  sim.ExpectWhole(worker, id, request);
  EXPECT_EQ(sim.brain.stats().failovers, 1u);
  EXPECT_EQ(worker.scheduler(), 1u) << "it was greeted again";
}

TEST(SchedulerWorkers, SequencesOfAnEarlierLifeAreCancelledAndForgotten) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker();
  StartSequence stray;
  stray.name = {.id = 77, .attempt = 0};
  stray.prompt = {1, 2, 3};
  stray.max_new_tokens = 5000;
  worker.Take(stray);
  StartSequence ended = stray;
  ended.name.id = 78;
  ended.max_new_tokens = 1;
  worker.Take(ended);
  ASSERT_TRUE(sim.RunUntil([&] { return worker.remembered() == 0; }, 200));
  EXPECT_EQ(sim.cancels, 1);
}

TEST(SchedulerWorkers, PlacesByFreeBytes) {
  Simulation sim;
  FakeWorker& small = sim.AddWorker({.name = "a", .pool_bytes = 16 * kMiB});
  FakeWorker& large = sim.AddWorker({.name = "b", .pool_bytes = 64 * kMiB});
  for (int i = 0; i < 4; ++i) sim.Submit(Request(640, 640, Fixed(Width::kFp16)));  // 5 MiB each
  EXPECT_EQ(large.starts(), 4u);
  for (int i = 0; i < 9; ++i) sim.Submit(Request(640, 640, Fixed(Width::kFp16)));
  EXPECT_GE(small.starts(), 1u) << "when the large one is as full";
}

TEST(SchedulerWorkers, TheNextTurnOfAChatGoesWhereItsPagesMayBe) {
  Simulation sim;
  FakeWorker& a = sim.AddWorker({.name = "a"});
  FakeWorker& b = sim.AddWorker({.name = "b"});
  SequenceRequest other = Request(640, 100), chat = Request(640, 100);
  other.prompt.front() = 1;
  chat.prompt.front() = 2;
  chat.cache_salt = "tenant";
  sim.Submit(other);
  const uint64_t id = sim.Submit(chat);
  ASSERT_EQ(b.starts(), 1u) << "the emptier one";
  ASSERT_TRUE(sim.RunUntilAllEnd({id, id - 1}));
  // Both are empty, where ties go to the first by name.
  const std::vector<int32_t> answer = sim.heard[id].tokens;
  chat.prompt.insert(chat.prompt.end(), answer.begin(), answer.end());
  ASSERT_TRUE(sim.RunUntilAllEnd({sim.Submit(chat)}));
  EXPECT_EQ(b.starts(), 2u);
  SequenceRequest stranger = chat, loner = chat, evicts = chat;
  stranger.cache_salt = "another";
  loner.share_prefix = false;
  evicts.plan.keep_tokens = 64;
  for (const SequenceRequest& request : {stranger, loner, evicts}) ASSERT_TRUE(sim.RunUntilAllEnd({sim.Submit(request)}));
  EXPECT_EQ(b.starts(), 2u);
  EXPECT_EQ(a.starts(), 4u);
  ASSERT_TRUE(sim.RunUntilAllEnd({sim.Submit(chat)}));
  EXPECT_EQ(b.starts(), 3u);
  // A new incarnation has no pages.
  sim.brain.OnHello(FakeWorker({.name = "b", .incarnation = 2}).Hello(), sim.now);
  sim.Submit(chat);
  EXPECT_EQ(a.starts(), 5u);
}

TEST(SchedulerWorkers, ADrainingWorkerGetsNothingNew) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker();
  WorkerStatus status = worker.Status();
  status.draining = true;
  sim.brain.OnStatus(status, sim.now);
  EXPECT_FALSE(sim.brain.ready());
  EXPECT_EQ(sim.brain.Submit({Request(10, 10)}, sim.now).status().code(), absl::StatusCode::kUnavailable);
}

TEST(SchedulerWorkers, RefusesWorkersThatCannotServeHere) {
  SchedulerOptions options;
  options.vocab = 1000;
  Simulation sim(options);
  WorkerHello hello = FakeWorker({}).Hello();
  hello.vocab = 999;
  sim.brain.OnHello(hello, sim.now);
  EXPECT_FALSE(sim.brain.ready());
  sim.brain.OnHello(hello, sim.now);
  sim.Exchange();
  EXPECT_EQ(sim.notes.size(), 1u) << "said once";
  sim.AddWorker({.incarnation = 5});
  WorkerHello other = FakeWorker({.name = "other"}).Hello();
  other.model = "another";
  sim.brain.OnHello(other, sim.now);
  EXPECT_EQ(sim.brain.fleet().workers().size(), 1u);
  sim.brain.OnHello(FakeWorker({.incarnation = 4}).Hello(), sim.now);
  EXPECT_EQ(sim.brain.fleet().workers().at("w0").hello.incarnation, 5u);
  hello.vocab = 1024;  // more rows than tokens are fine
  hello.worker = "padded";
  sim.brain.OnHello(hello, sim.now);
  EXPECT_EQ(sim.brain.fleet().workers().size(), 2u);
}

}  // namespace
}  // namespace stria
