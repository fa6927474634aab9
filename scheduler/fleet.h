// The workers that the scheduler knows: what they said of themselves, when they were last heard, what is reserved on them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "proto/sequences.h"
#include "scheduler/circuit_breaker.h"
#include "scheduler/memory_demand.h"

namespace stria {

struct Worker {
  WorkerHello hello;
  WorkerStatus status;
  MonotonicTime last_heard;
  std::optional<MonotonicTime> unreachable_since;  // its connection is gone
  MemoryDemand reserved;   // of the sequences that were given to it
  uint32_t sequences = 0;  // given to it and not known to have ended
  bool exclusive = false;  // holds a sequence that must be alone
  bool promised = false;   // kept for a sequence that waits until it fits
  uint64_t unexplained_bytes = 0;  // that the worker says are in use, above all that is reserved

  CircuitBreaker::State breaker = CircuitBreaker::State::kClosed;  // as of the last UpdateBreakers

  bool accepts() const {
    const uint32_t most = breaker == CircuitBreaker::State::kTrial ? 1 : hello.max_sequences;
    return !status.draining && !exclusive && !promised && breaker != CircuitBreaker::State::kOpen && sequences < most;
  }
};

class Fleet {
 public:
  enum class Hello { kNew, kKnown, kRestarted };

  // `vocab`: of the tokenizer, which the workers' model must cover (it may have more rows).
  // Workers that it takes: their model has so many tokens at least, and this fingerprint unless it is empty.
  explicit Fleet(uint32_t vocab, std::string model = "") : vocab_(vocab), model_(std::move(model)) {}

  // Why a worker with this hello cannot serve here: another vocabulary, another model than the workers already here, an
  // older incarnation of one of them, a model without layers.
  absl::Status Judge(const WorkerHello& hello) const;

  // Registers, or refreshes. kRestarted: the same name with another incarnation; the caller gives up the old one's sequences
  // first, reservations start at zero.
  Hello Register(const WorkerHello& hello, MonotonicTime now);
  void Remove(const std::string& name) { workers_.erase(name); }

  // nullptr when unknown, or known under another incarnation.
  Worker* Find(const std::string& name, uint64_t incarnation);
  Worker* Find(const std::string& name);

  // Something came from it.
  static void Heard(Worker& worker, MonotonicTime now) {
    worker.last_heard = now;
    worker.unreachable_since.reset();
  }

  // Workers silent for longer than `silence`, or without a connection for longer than `unreachable`, and which of the two.
  std::vector<std::pair<std::string, std::string_view>> Lost(MonotonicTime now, Duration silence, Duration unreachable) const;

  bool accepts() const;  // some worker does
  void TakeBackPromises();

  // By name, so that it outlives a worker's process.
  CircuitBreaker& BreakerOf(const std::string& name) { return breakers_[name]; }
  // Brings every worker's `breaker` up to date. Where all that could serve are open they are on trial instead: a breaker chooses
  // between workers, it never stops the service.
  void UpdateBreakers(MonotonicTime now);
  const CircuitBreaker* FindBreaker(const std::string& name) const;  // nullptr: as good as new
  uint64_t trips() const;  // of all breakers that are remembered, and of those forgotten

  const std::map<std::string, Worker>& workers() const { return workers_; }
  std::map<std::string, Worker>& workers() { return workers_; }

 private:
  uint32_t vocab_;
  std::string model_;
  std::map<std::string, Worker> workers_;
  std::map<std::string, CircuitBreaker> breakers_;
  uint64_t forgotten_trips_ = 0;
};

}  // namespace stria
