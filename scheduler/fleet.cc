#include "scheduler/fleet.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace stria {

absl::Status Fleet::Judge(const WorkerHello& hello) const {
  if (hello.worker.empty()) return absl::InvalidArgumentError("a worker without a name");
  if (hello.layers.empty()) return absl::InvalidArgumentError(absl::StrCat("worker ", hello.worker, ": no layers"));
  if (hello.pool_bytes == 0) return absl::InvalidArgumentError(absl::StrCat("worker ", hello.worker, ": pool of 0 bytes"));
  if (hello.vocab < vocab_) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", hello.worker, ": its model has ", hello.vocab,
                                                   " tokens, the scheduler's tokenizer has ", vocab_));
  }
  if (!model_.empty() && hello.model != model_) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", hello.worker, ": serves model ", hello.model, ", the pack is for ", model_));
  }
  for (const auto& [name, other] : workers_) {
    if (name == hello.worker && hello.incarnation < other.hello.incarnation) {
      return absl::InvalidArgumentError(absl::StrCat("worker ", name, ": incarnation ", hello.incarnation,
                                                     " is older than the one here, ", other.hello.incarnation));
    }
    if (name != hello.worker && other.hello.model != hello.model) {
      return absl::InvalidArgumentError(absl::StrCat("worker ", hello.worker, ": serves model ", hello.model, ", worker ",
                                                     name, " serves ", other.hello.model));
    }
  }
  return absl::OkStatus();
}

Fleet::Hello Fleet::Register(const WorkerHello& hello, MonotonicTime now) {
  const auto it = workers_.find(hello.worker);
  if (it != workers_.end() && it->second.hello.incarnation == hello.incarnation) {
    it->second.hello = hello;
    Heard(it->second, now);
    return Hello::kKnown;
  }
  const Hello result = it == workers_.end() ? Hello::kNew : Hello::kRestarted;
  Worker worker;
  worker.hello = hello;
  worker.last_heard = now;
  workers_[hello.worker] = worker;
  return result;
}

void Fleet::UpdateBreakers(MonotonicTime now) {
  std::erase_if(breakers_, [&](const auto& entry) {
    if (!entry.second.clean(now)) return false;
    forgotten_trips_ += entry.second.trips();
    return true;
  });
  bool all_open = true;
  for (auto& [name, worker] : workers_) {
    const auto breaker = breakers_.find(name);
    worker.breaker = breaker == breakers_.end() ? CircuitBreaker::State::kClosed : breaker->second.state(now);
    all_open &= worker.status.draining || worker.breaker == CircuitBreaker::State::kOpen;
  }
  if (!all_open) return;
  for (auto& [name, worker] : workers_) worker.breaker = CircuitBreaker::State::kTrial;
}

bool Fleet::accepts() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const auto& entry) { return entry.second.accepts(); });
}

void Fleet::TakeBackPromises() {
  for (auto& [name, worker] : workers_) worker.promised = false;
}

const CircuitBreaker* Fleet::FindBreaker(const std::string& name) const {
  const auto it = breakers_.find(name);
  return it == breakers_.end() ? nullptr : &it->second;
}

uint64_t Fleet::trips() const {
  uint64_t trips = forgotten_trips_;
  for (const auto& [name, breaker] : breakers_) trips += breaker.trips();
  return trips;
}

Worker* Fleet::Find(const std::string& name) {
  const auto it = workers_.find(name);
  return it == workers_.end() ? nullptr : &it->second;
}

Worker* Fleet::Find(const std::string& name, uint64_t incarnation) {
  Worker* worker = Find(name);
  return worker != nullptr && worker->hello.incarnation == incarnation ? worker : nullptr;
}

std::vector<std::pair<std::string, std::string_view>> Fleet::Lost(MonotonicTime now, Duration silence,
                                                                  Duration unreachable) const {
  std::vector<std::pair<std::string, std::string_view>> lost;
  for (const auto& [name, worker] : workers_) {
    if (worker.unreachable_since && now - *worker.unreachable_since >= unreachable) {
      lost.emplace_back(name, "its connection is gone");
    } else if (now - worker.last_heard > silence) {
      lost.emplace_back(name, "it was silent for too long");
    }
  }
  return lost;
}

}  // namespace stria
