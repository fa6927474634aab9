// The brain against simulated workers: time is simulated, links lose and double messages where a test says so.
#include "scheduler/scheduler.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "scheduler/fake_worker.h"

namespace stria {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Heard {
  std::vector<int32_t> tokens;
  int starts = 0, ends = 0;
  FinishReason finish = FinishReason::kNone;
  absl::Status status;
  KvUsage kv;
};

class Simulation {
 public:
  explicit Simulation(SchedulerOptions options = {}) : brain(options) {}

  FakeWorker& AddWorker(FakeWorkerOptions options = {}) {
    const std::string name = options.name;
    workers[name] = std::make_unique<FakeWorker>(options);
    brain.OnHello(workers[name]->Hello(), now);
    brain.OnStatus(workers[name]->Status(), now);
    Exchange();
    return *workers[name];
  }

  // 20 ms: a step of every worker, its status now and then, a tick.
  void Step() {
    now += milliseconds(20);
    ++steps;
    for (auto& [name, worker] : workers) {
      if (hung.contains(name)) continue;
      if (steps % 50 == 0) brain.OnHello(worker->Hello(), now);
      StepOutputs outputs = worker->Step();
      if (!outputs.outputs.empty() && !Lost()) {
        if (Doubled()) brain.OnOutputs(outputs, now);
        brain.OnOutputs(std::move(outputs), now);
      }
      if (steps % 25 == 0 && !Lost()) brain.OnStatus(worker->Status(), now);
    }
    if (steps % 5 == 0) brain.Tick(now);
    Exchange();
  }

  bool RunUntil(const std::function<bool()>& done, int most = 20000) {
    for (int i = 0; i < most && !done(); ++i) Step();
    return done();
  }
  bool RunUntilAllEnd(const std::vector<uint64_t>& ids) {
    return RunUntil([&] {
      for (const uint64_t id : ids) {
        if (heard[id].ends == 0) return false;
      }
      return true;
    });
  }

  void Exchange() {
    Effects effects = brain.TakeEffects();
    for (auto& [name, command] : effects.commands) {
      if (std::holds_alternative<CancelSequence>(command)) ++cancels;
      const auto worker = workers.find(name);
      if (worker == workers.end()) brain.OnUnreachable(name, now);
      if (worker == workers.end() || hung.contains(name) || Lost()) continue;
      if (Doubled()) worker->second->Take(command);
      worker->second->Take(command);
    }
    for (SequenceEvent& event : effects.events) {
      Heard& of = heard[event.id];
      EXPECT_EQ(of.ends, 0) << "something came after the end of " << event.id;
      for (const TokenOut& token : event.tokens) of.tokens.push_back(token.token);
      of.starts += event.started;
      if (event.finished) {
        ++of.ends;
        of.finish = event.finish;
        of.status = event.status;
        of.kv = event.kv;
        order_of_ends.push_back(event.id);
      }
      if (event.started) order_of_starts.push_back(event.id);
    }
    for (std::string& note : effects.notes) notes.push_back(std::move(note));
  }

  uint64_t Submit(SequenceRequest request) {
    auto ids = brain.Submit({std::move(request)}, now);
    EXPECT_TRUE(ids.ok()) << ids.status();
    Exchange();
    return ids.ok() ? ids->front() : 0;
  }

  void ExpectWhole(const FakeWorker& worker, uint64_t id, const SequenceRequest& request) {
    ASSERT_EQ(heard[id].tokens.size(), request.max_new_tokens) << id;
    for (uint32_t i = 0; i < request.max_new_tokens; ++i) {
      ASSERT_EQ(heard[id].tokens[i], worker.TokenAt(request.prompt.front(), i)) << "sequence " << id << " token " << i;
    }
    EXPECT_EQ(heard[id].starts, 1);
    EXPECT_EQ(heard[id].ends, 1);
    EXPECT_TRUE(heard[id].status.ok()) << heard[id].status;
  }

  bool Lost() { return loss > 0 && Uniform(seed, 1, draws++) < loss; }
  bool Doubled() { return doubling > 0 && Uniform(seed, 2, draws++) < doubling; }

  Scheduler brain;
  std::map<std::string, std::unique_ptr<FakeWorker>> workers;
  std::map<uint64_t, Heard> heard;
  std::vector<uint64_t> order_of_starts, order_of_ends;
  std::vector<std::string> notes;
  MonotonicTime now{std::chrono::hours(1)};
  double loss = 0, doubling = 0;
  std::set<std::string> hung;  // these do and hear nothing
  uint64_t seed = 1, draws = 0, steps = 0;
  int cancels = 0;
};

CachePlan Fixed(Width width, uint32_t layers = 4) {
  CachePlan plan{.follow_tiers = false, .layers = {}};
  LayerAction action;
  action.keys = action.values = width;
  plan.layers.assign(layers, action);
  return plan;
}

SequenceRequest Request(uint32_t prompt, uint32_t max_new, CachePlan plan = {}) {
  SequenceRequest request;
  request.prompt.assign(prompt, 3);
  request.max_new_tokens = max_new;
  request.plan = std::move(plan);
  return request;
}

TEST(Scheduler, ASequenceRunsAndEndsOnce) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker();
  const SequenceRequest request = Request(100, 200);
  const uint64_t id = sim.Submit(request);
  ASSERT_TRUE(sim.RunUntilAllEnd({id}));
  sim.ExpectWhole(worker, id, request);
  EXPECT_EQ(sim.heard[id].finish, FinishReason::kLength);
  EXPECT_EQ(sim.heard[id].kv.tokens, 300u);
  sim.Step();
  EXPECT_EQ(worker.remembered(), 0u) << "the end is acknowledged";
  EXPECT_EQ(sim.brain.stats().reserved_bytes, 0u);
}

TEST(Scheduler, StopTokensEndASequence) {
  Simulation sim;
  sim.AddWorker({.stop_at = 5});
  SequenceRequest request = Request(10, 200);
  request.stop_tokens = {2};
  const uint64_t id = sim.Submit(request);
  ASSERT_TRUE(sim.RunUntilAllEnd({id}));
  EXPECT_EQ(sim.heard[id].finish, FinishReason::kStop);
  EXPECT_EQ(sim.heard[id].tokens.size(), 6u) << "the stop token is reported and counted";
}

TEST(Scheduler, WithoutAWorkerNothingIsTaken) {
  Simulation sim;
  EXPECT_EQ(sim.brain.Submit({Request(10, 10)}, sim.now).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(sim.brain.ready());
}

TEST(Scheduler, WhatNeverFitsIsRefusedWithTheNumbers) {
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

TEST(Scheduler, AFullPoolQueuesFirstComeFirstServed) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker({.pool_bytes = 16 * kMiB});
  std::vector<uint64_t> ids;
  const SequenceRequest request = Request(320, 320, Fixed(Width::kFp16));  // 9 pages: 2.3 MiB
  for (int i = 0; i < 20; ++i) ids.push_back(sim.Submit(request));
  const SequenceRequest large = Request(1500, 1500, Fixed(Width::kFp16));  // 11.7 MiB: needs nearly all
  ids.push_back(sim.Submit(large));
  const SequenceRequest small = Request(1, 1, Fixed(Width::kFp16));
  ids.push_back(sim.Submit(small));
  EXPECT_GT(sim.brain.stats().waiting, 10u);
  ASSERT_TRUE(sim.RunUntilAllEnd(ids));
  EXPECT_EQ(sim.order_of_starts, ids) << "nobody overtakes";
  for (int i = 0; i < 20; ++i) sim.ExpectWhole(worker, ids[i], request);
  sim.ExpectWhole(worker, ids[20], large);
  EXPECT_EQ(worker.preemptions(), 0u) << "what was set aside was enough";
  EXPECT_GE(worker.most_at_once(), 4u);
}

TEST(Scheduler, TheQueueIsBounded) {
  SchedulerOptions options;
  options.queue_limit = 5;
  Simulation sim(options);
  sim.AddWorker({.max_sequences = 1});
  for (int i = 0; i < 6; ++i) sim.Submit(Request(10, 100));  // one runs, five wait
  const absl::Status full = sim.brain.Submit({Request(10, 100)}, sim.now).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(sim.brain.RetryAfterSeconds(), 1u);
  EXPECT_EQ(sim.brain.Submit({6, Request(10, 100)}, sim.now).status().code(), absl::StatusCode::kInvalidArgument)
      << "more at once than the queue can ever hold";
}

TEST(Scheduler, AllOfARequestOrNone) {
  SchedulerOptions options;
  options.queue_limit = 5;
  Simulation sim(options);
  sim.AddWorker({.max_sequences = 1});
  for (int i = 0; i < 4; ++i) sim.Submit(Request(10, 100));
  EXPECT_FALSE(sim.brain.Submit({3, Request(10, 100)}, sim.now).ok());
  EXPECT_EQ(sim.brain.stats().waiting, 3u);
}

TEST(Scheduler, WaitingEndsAtTheTimeout) {
  SchedulerOptions options;
  options.queue_timeout = seconds(2);
  Simulation sim(options);
  FakeWorker& worker = sim.AddWorker({.max_sequences = 1});
  const SequenceRequest request = Request(10, 500);
  const uint64_t runs = sim.Submit(request), waits = sim.Submit(request);
  ASSERT_TRUE(sim.RunUntilAllEnd({waits}));
  EXPECT_EQ(sim.heard[waits].status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(sim.heard[waits].starts, 0);
  ASSERT_TRUE(sim.RunUntilAllEnd({runs}));
  sim.ExpectWhole(worker, runs, request);
}

TEST(Scheduler, CancelWhileWaitingAndWhileRunning) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker({.max_sequences = 1});
  const uint64_t runs = sim.Submit(Request(10, 4000)), waits = sim.Submit(Request(10, 4000)), next = sim.Submit(Request(10, 20));
  for (int i = 0; i < 10; ++i) sim.Step();
  sim.brain.Cancel(waits, sim.now);
  sim.Exchange();
  EXPECT_EQ(sim.heard[waits].ends, 1) << "a waiting one ends at once";
  EXPECT_EQ(sim.heard[waits].finish, FinishReason::kCancelled);
  const size_t before = sim.heard[runs].tokens.size();
  sim.brain.Cancel(runs, sim.now);
  sim.brain.Cancel(runs, sim.now);
  sim.Exchange();
  ASSERT_TRUE(sim.RunUntilAllEnd({runs, next}));
  EXPECT_EQ(sim.cancels, 1) << "no storm";
  EXPECT_EQ(sim.heard[runs].tokens.size(), before);
  EXPECT_EQ(sim.heard[runs].finish, FinishReason::kCancelled);
  EXPECT_TRUE(sim.heard[runs].status.ok());
  sim.Step();
  EXPECT_EQ(worker.used_bytes(), 0u);
  EXPECT_EQ(worker.remembered(), 0u);
  sim.brain.Cancel(12345, sim.now);  // unknown: nothing happens
}

// Two requests that each take 60 % of the pool at FP16 were admitted while the tiers were narrow.
TEST(Scheduler, TwoOfSixtyPercentBothFinish) {
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
TEST(Scheduler, WidenedPlansOvercommitAndAllFinish) {
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

TEST(Scheduler, OnlyWorkersOfThePacksModelAreTaken) {
  Fleet fleet(/*vocab=*/0, "abc");
  WorkerHello hello = FakeWorker({}).Hello();
  hello.model = "abc";
  EXPECT_TRUE(fleet.Judge(hello).ok());
  hello.model = "abd";
  EXPECT_EQ(fleet.Judge(hello).message(), "worker w0: serves model abd, the pack is for abc");
}

TEST(Scheduler, ManyThatOvercommitAllFinish) {
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

TEST(Scheduler, AnAnswerWithoutALimitTakesWhatThePoolHolds) {
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

TEST(Scheduler, ForcedTokensStartAgainFromThePrompt) {
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

TEST(Scheduler, LossAndDoublingDelayAndNeverChange) {
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

TEST(Scheduler, CancelGetsThroughALossyLink) {
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

TEST(Scheduler, WhatNobodyCanGoOnWithEndsAtTheQueueTimeout) {
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

TEST(Scheduler, ALostWorkersStreamsGoOnElsewhere) {
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

TEST(Scheduler, ALoneWorkersStreamsGoOnWhenItIsBack) {
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

TEST(Scheduler, ACancelledSequenceOfALostWorkerJustEnds) {
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

TEST(Scheduler, ASequenceThatKillsItsWorkersIsGivenUp) {
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

TEST(Scheduler, AWorkerThatKeepsDyingIsHeldBackForAWhile) {
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

TEST(Scheduler, TheLastWorkerIsUsedEvenIfItKeepsFailing) {
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

TEST(Scheduler, AWorkerThatHangsIsLostLater) {
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

TEST(Scheduler, ALeavingWorkersSequencesAreMoved) {
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

TEST(Scheduler, AShortDisconnectIsNoLoss) {
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

TEST(Scheduler, AWorkerThatDroppedASequenceIsFoundOut) {
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

TEST(Scheduler, SequencesOfAnEarlierLifeAreCancelledAndForgotten) {
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

TEST(Scheduler, PlacesByFreeBytes) {
  Simulation sim;
  FakeWorker& small = sim.AddWorker({.name = "a", .pool_bytes = 16 * kMiB});
  FakeWorker& large = sim.AddWorker({.name = "b", .pool_bytes = 64 * kMiB});
  for (int i = 0; i < 4; ++i) sim.Submit(Request(640, 640, Fixed(Width::kFp16)));  // 5 MiB each
  EXPECT_EQ(large.starts(), 4u);
  for (int i = 0; i < 9; ++i) sim.Submit(Request(640, 640, Fixed(Width::kFp16)));
  EXPECT_GE(small.starts(), 1u) << "when the large one is as full";
}

TEST(Scheduler, TheNextTurnOfAChatGoesWhereItsPagesMayBe) {
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

TEST(Scheduler, EvictedTokensTakeStagingAndNoPages) {
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

TEST(Scheduler, ADrainingWorkerGetsNothingNew) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker();
  WorkerStatus status = worker.Status();
  status.draining = true;
  sim.brain.OnStatus(status, sim.now);
  EXPECT_FALSE(sim.brain.ready());
  EXPECT_EQ(sim.brain.Submit({Request(10, 10)}, sim.now).status().code(), absl::StatusCode::kUnavailable);
}

TEST(Scheduler, RefusesWorkersThatCannotServeHere) {
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

TEST(Scheduler, AnErrorOfTheWorkerReachesTheOwner) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker();
  const uint64_t id = sim.Submit(Request(10, 100));
  StepOutputs outputs = worker.Step();
  outputs.outputs[0].finish = FinishReason::kError;
  outputs.outputs[0].message = "no token has a finite logit";
  sim.brain.OnOutputs(outputs, sim.now);
  sim.Exchange();
  EXPECT_EQ(sim.heard[id].ends, 1);
  EXPECT_EQ(sim.heard[id].status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(sim.heard[id].status.message(), "no token has a finite logit"));
}

TEST(Scheduler, PrioritiesGoFirstInTheQueueAndLastFromThePool) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker({.pool_bytes = 32 * kMiB, .max_sequences = 2});
  std::vector<uint64_t> ids;
  for (int i = 0; i < 6; ++i) {
    SequenceRequest request = Request(10, 100);
    request.priority = i < 2 ? 0 : 3 - i;  // two run; then 1, 0, -1, -2
    ids.push_back(sim.Submit(request));
  }
  ASSERT_TRUE(sim.RunUntilAllEnd(ids));
  EXPECT_EQ(sim.order_of_starts, (std::vector<uint64_t>{ids[0], ids[1], ids[5], ids[4], ids[3], ids[2]}));

  worker.SetTiers(Width::kInt2);
  sim.brain.OnStatus(worker.Status(), sim.now);
  SequenceRequest request = Request(64, 64 * 75);  // 60 % of the pool at FP16
  request.priority = 1;
  const uint64_t first = sim.Submit(request);
  request.priority = 0;
  const uint64_t second = sim.Submit(request);
  for (int i = 0; i < 50; ++i) sim.Step();
  worker.SetTiers(Width::kFp16);
  ASSERT_TRUE(sim.RunUntilAllEnd({first, second}));
  EXPECT_EQ(sim.order_of_ends.back(), first) << "the older, less important one gave its pages back";
  EXPECT_EQ(worker.preemptions(), 1u);
}

TEST(Scheduler, TenantsShareAlike) {
  SchedulerOptions options;
  options.shares = {{"paying", 2}};
  Simulation sim(options);
  sim.AddWorker({.max_sequences = 3});
  std::map<uint64_t, std::string> tenants;
  for (int i = 0; i < 300; ++i) {
    SequenceRequest request = Request(10, 50);
    request.tenant = i < 200 ? "flood" : i % 2 ? "paying" : "other";
    tenants[sim.Submit(request)] = request.tenant;
  }
  ASSERT_TRUE(sim.RunUntil([&] { return sim.order_of_ends.size() >= 83; }));
  std::map<std::string, int> ends;
  for (size_t i = 3; i < 83; ++i) ++ends[tenants[sim.order_of_ends[i]]];
  EXPECT_NEAR(ends["paying"], 40, 4);
  EXPECT_NEAR(ends["flood"], 20, 4);
  EXPECT_NEAR(ends["other"], 20, 4);
}

TEST(Scheduler, OneTenantDoesNotFillTheQueue) {
  SchedulerOptions options;
  options.queue_limit = 4;
  options.tenant_queue_limit = 2;
  Simulation sim(options);
  sim.AddWorker({.max_sequences = 1});
  SequenceRequest request = Request(10, 100);
  for (int i = 0; i < 3; ++i) sim.Submit(request);
  EXPECT_EQ(sim.brain.Submit({request}, sim.now).status().code(), absl::StatusCode::kResourceExhausted);
  request.tenant = "other";
  sim.Submit(request);
}

TEST(Scheduler, ALargeSequenceIsNotStarvedAndOtherWorkersGoOn) {
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

TEST(Scheduler, WhatNoWorkerHereCouldHoldWaitsAndBlocksNobody) {
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

TEST(Scheduler, DeadlinesEndWhatWaitsAndWhatRuns) {
  Simulation sim;
  FakeWorker& worker = sim.AddWorker({.max_sequences = 1});
  SequenceRequest request = Request(10, 8000);
  request.deadline = seconds(3);
  const uint64_t runs = sim.Submit(request), waits = sim.Submit(request);
  request.deadline = seconds(0);
  request.queue_timeout = seconds(1);
  request.max_new_tokens = 10;
  const uint64_t impatient = sim.Submit(request);
  ASSERT_TRUE(sim.RunUntil([&] { return sim.heard[impatient].ends == 1; }, 60));
  EXPECT_EQ(sim.heard[impatient].status.code(), absl::StatusCode::kAborted);
  sim.hung = {"w0"};  // nobody waits for the worker to let go
  ASSERT_TRUE(sim.RunUntil([&] { return sim.heard[runs].ends == 1 && sim.heard[waits].ends == 1; }, 160));
  EXPECT_EQ(sim.heard[runs].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(sim.heard[waits].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GT(sim.heard[runs].tokens.size(), 10u);
  sim.hung = {};
  ASSERT_TRUE(sim.RunUntil([&] { return worker.used_bytes() == 0 && worker.remembered() == 0; }, 300));
  EXPECT_EQ(sim.brain.stats().running, 0u);
}

TEST(Scheduler, WhatAWorkerReportsCorrectsTheEstimate) {
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
TEST(Scheduler, NoScheduleLivelocks) {
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
