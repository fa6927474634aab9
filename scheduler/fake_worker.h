// A worker for tests: generates tokens that depend on their index alone, holds pages by the same arithmetic as the real one,
// preempts the newest of its least important sequences when they run out, and keeps what it said until it is acknowledged.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/sequences.h"
#include "scheduler/scheduler.h"

namespace stria {

struct FakeWorkerOptions {
  std::string name = "w0";
  uint64_t incarnation = 1;
  uint64_t pool_bytes = uint64_t{64} << 20;
  uint32_t max_sequences = 64;
  uint32_t max_context = 8192;
  uint32_t layers = 4;
  uint32_t vocab = 1000;
  uint64_t cached_tokens = 0;  // that every sequence says it found
  int32_t stop_at = -1;  // token index at which the first stop token is produced; -1: never
  // What the model says: the token at an index. Empty: TokenAt.
  std::function<int32_t(const StartSequence&, uint32_t)> says = nullptr;
};

class FakeWorker {
 public:
  explicit FakeWorker(FakeWorkerOptions options);

  WorkerHello Hello() const;
  WorkerStatus Status() const;
  void Take(const WorkerCommand& command);
  // One decode step: a token for each sequence, a prompt in one step. What is not acknowledged comes again every `resend` steps.
  StepOutputs Step(uint32_t resend = 8);

  // As on SIGTERM: new sequences are sent away, and at the deadline those that still run.
  void Drain() { draining_ = true; }
  void HandOver();

  void SetTiers(Width width) { tier_ = width; }
  void SetGuard(Width width) { guard_ = width; }
  uint64_t used_bytes() const;
  size_t sequences() const { return running_.size(); }
  size_t remembered() const { return log_.size(); }  // sequences whose end is not acknowledged
  uint32_t preemptions() const { return preemptions_; }
  uint64_t scheduler() const { return scheduler_; }
  uint64_t starts() const { return starts_; }
  uint32_t most_at_once() const { return most_at_once_; }

  // What a sequence's token with this index is: a function of its prompt's first token and the index.
  int32_t TokenAt(int32_t first_prompt_token, uint32_t index) const;

 private:
  struct Running {
    StartSequence start;
    uint32_t next = 0;     // token index
    uint64_t order = 0;    // of arrival
    MemoryDemand held;
  };
  // Everything said of one sequence, from index `base`.
  struct Log {
    uint32_t base = 0, acked = 0, sent = 0;
    std::vector<TokenOut> tokens;
    FinishReason finish = FinishReason::kNone;
    std::string message;
    KvUsage kv;
    bool end_sent = false;
  };

  MemoryDemand DemandOf(const Running& sequence, uint64_t tokens) const;
  void Finish(const SequenceName& name, FinishReason reason);
  MemoryDemand Held() const;

  FakeWorkerOptions options_;
  Width tier_ = Width::kFp16, guard_ = Width::kInt2;
  bool draining_ = false;
  uint64_t scheduler_ = 0;
  std::map<SequenceName, Running> running_;
  std::map<SequenceName, Log> log_;
  std::set<SequenceName> ended_;
  uint64_t next_order_ = 0, steps_ = 0, starts_ = 0;
  uint32_t preemptions_ = 0, most_at_once_ = 0;
};

}  // namespace stria
