// The brain against simulated workers: the life of a sequence, the queue, and whose turn it is.
#include "absl/strings/match.h"
#include "scheduler/simulation.h"

namespace stria {
namespace {

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

}  // namespace
}  // namespace stria
