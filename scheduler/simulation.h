// The brain against simulated workers, for its tests: time is simulated, links lose and double messages where a test says so.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "scheduler/fake_worker.h"
#include "scheduler/scheduler.h"

namespace stria {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

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

inline CachePlan Fixed(Width width, uint32_t layers = 4) {
  CachePlan plan{.follow_tiers = false, .layers = {}};
  LayerAction action;
  action.keys = action.values = width;
  plan.layers.assign(layers, action);
  return plan;
}

inline SequenceRequest Request(uint32_t prompt, uint32_t max_new, CachePlan plan = {}) {
  SequenceRequest request;
  request.prompt.assign(prompt, 3);
  request.max_new_tokens = max_new;
  request.plan = std::move(plan);
  return request;
}

}  // namespace stria
