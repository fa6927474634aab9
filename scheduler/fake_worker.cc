#include "scheduler/fake_worker.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "scheduler/estimate.h"

namespace stria {

FakeWorker::FakeWorker(FakeWorkerOptions options) : options_(std::move(options)) {}

WorkerHello FakeWorker::Hello() const {
  WorkerHello hello;
  hello.worker = options_.name;
  hello.incarnation = options_.incarnation;
  hello.model = "0123456789abcdef";
  hello.model_name = "fake";
  hello.http = "127.0.0.1:1";
  hello.vocab = options_.vocab;
  hello.max_context = options_.max_context;
  hello.max_sequences = options_.max_sequences;
  hello.pool_bytes = options_.pool_bytes;
  hello.staging_bytes_per_token = 1024;
  LayerBytes bytes{.key_page = {4096, 8192, 16384, 32768}, .value_page = {4096, 8192, 16384, 32768}, .ring = 65536};
  hello.layers.assign(options_.layers, bytes);
  return hello;
}

WorkerStatus FakeWorker::Status() const {
  WorkerStatus status;
  status.worker = options_.name;
  status.incarnation = options_.incarnation;
  status.scheduler = scheduler_;
  status.pool_bytes = options_.pool_bytes;
  status.used_bytes = used_bytes();
  status.running = static_cast<uint32_t>(running_.size());
  status.key_bits.assign(options_.layers, static_cast<uint8_t>(Bits(tier_)));
  status.value_bits = status.key_bits;
  status.guard_bits.assign(options_.layers, static_cast<uint8_t>(Bits(guard_)));
  status.draining = draining_;
  return status;
}

int32_t FakeWorker::TokenAt(int32_t first_prompt_token, uint32_t index) const {
  return static_cast<int32_t>((static_cast<uint32_t>(first_prompt_token) * 7 + index * 13) % (options_.vocab - 10)) + 10;
}

void FakeWorker::Take(const WorkerCommand& command) {
  if (const auto* hello = std::get_if<SchedulerHello>(&command)) {
    if (scheduler_ != hello->incarnation) {
      running_.clear();
      log_.clear();
      ended_.clear();
    }
    scheduler_ = hello->incarnation;
  } else if (const auto* start = std::get_if<StartSequence>(&command)) {
    ++starts_;
    if (running_.contains(start->name) || ended_.contains(start->name)) return;
    Running sequence{.start = *start, .next = start->delivered, .order = next_order_++, .held = {}};
    running_[start->name] = sequence;
    Log& log = log_[start->name];
    log.base = log.acked = log.sent = start->delivered;
    if (draining_) Finish(start->name, FinishReason::kMoved);
  } else if (const auto* cancel = std::get_if<CancelSequence>(&command)) {
    if (running_.contains(cancel->name)) Finish(cancel->name, FinishReason::kCancelled);
  } else {
    const auto& ack = std::get<AckSequence>(command);
    const auto it = log_.find(ack.name);
    if (it == log_.end()) return;
    it->second.acked = std::max(it->second.acked, ack.tokens);
    if (ack.tokens < it->second.sent) it->second.sent = std::max(it->second.acked, it->second.base);
    if (ack.finished) log_.erase(it);
  }
}

MemoryDemand FakeWorker::DemandOf(const Running& sequence, uint64_t tokens) const {
  const WorkerHello hello = Hello();
  const StartSequence& start = sequence.start;
  const auto original = static_cast<uint32_t>(start.prompt.size()) - start.delivered;
  return CacheDemand(hello, WidthsOf(start.plan, hello, Status()), tokens - EvictedTokens(original, start.plan.keep_tokens));
}

MemoryDemand FakeWorker::Held() const {
  MemoryDemand held;
  for (const auto& [name, sequence] : running_) held += sequence.held;
  return held;
}

uint64_t FakeWorker::used_bytes() const { return Held().Bytes(); }

void FakeWorker::Finish(const SequenceName& name, FinishReason reason) {
  Log& log = log_.at(name);
  const auto it = running_.find(name);
  log.finish = reason;
  log.kv.tokens = it->second.start.prompt.size() + it->second.next - it->second.start.delivered;
  log.kv.bytes = it->second.held.Bytes();
  log.kv.fp16_bytes = log.kv.tokens * 4096;
  log.kv.bits_per_element = 18;
  log.kv.cached_tokens = options_.cached_tokens;
  ended_.insert(name);
  running_.erase(it);
}

void FakeWorker::HandOver() {
  while (!running_.empty()) Finish(SequenceName(running_.begin()->first), FinishReason::kMoved);
}

StepOutputs FakeWorker::Step(uint32_t resend) {
  ++steps_;
  // Grow in order of arrival; when the pool is full the newest of the least important goes.
  std::vector<std::pair<uint64_t, SequenceName>> order;
  for (const auto& [name, sequence] : running_) order.emplace_back(sequence.order, name);
  std::sort(order.begin(), order.end());
  for (const auto& [arrived, name] : order) {
    auto it = running_.find(name);
    if (it == running_.end()) continue;
    Running& sequence = it->second;
    const uint64_t tokens = sequence.start.prompt.size() + sequence.next - sequence.start.delivered;
    MemoryDemand needs = DemandOf(sequence, tokens);
    bool gone = false;
    while (!gone) {
      MemoryDemand others = Held();
      others -= sequence.held;
      if ((others + needs).Footprint() <= options_.pool_bytes) break;
      const auto victim = std::max_element(running_.begin(), running_.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.start.priority, a.second.order) < std::pair(b.second.start.priority, b.second.order);
      });
      gone = victim->first == name;
      ++preemptions_;
      Finish(SequenceName(victim->first), FinishReason::kPreempted);
    }
    if (gone) continue;
    sequence.held = std::move(needs);
    TokenOut token;
    const bool forced = !sequence.start.forced.empty();
    const std::vector<int32_t>& stop_tokens = sequence.start.stop_tokens;
    token.token = forced          ? sequence.start.forced[sequence.next]
                  : options_.says ? options_.says(sequence.start, sequence.next)
                                  : TokenAt(sequence.start.prompt.front(), sequence.next);
    if (static_cast<int32_t>(sequence.next) == options_.stop_at && !stop_tokens.empty()) token.token = stop_tokens.front();
    const bool stops = !forced && std::find(stop_tokens.begin(), stop_tokens.end(), token.token) != stop_tokens.end();
    token.logprob = -0.5f;
    for (int k = 0; k < sequence.start.sampling.top_logprobs; ++k) token.top.push_back({token.token + k, -0.5f - static_cast<float>(k)});
    log_.at(name).tokens.push_back(token);
    const uint32_t limit = forced ? static_cast<uint32_t>(sequence.start.forced.size()) : sequence.start.max_new_tokens;
    if (++sequence.next >= limit || stops) Finish(name, stops ? FinishReason::kStop : FinishReason::kLength);
  }
  most_at_once_ = std::max(most_at_once_, static_cast<uint32_t>(running_.size()));

  StepOutputs outputs;
  outputs.worker = options_.name;
  outputs.incarnation = options_.incarnation;
  for (auto& [name, log] : log_) {
    const uint32_t end = log.base + static_cast<uint32_t>(log.tokens.size());
    if (steps_ % resend == 0) {
      log.sent = std::max(log.acked, log.base);
      log.end_sent = false;
    }
    const bool ends = log.finish != FinishReason::kNone && !log.end_sent;
    if (log.sent == end && !ends) continue;
    SequenceOutput& output = outputs.outputs.emplace_back();
    output.name = name;
    output.first_index = log.sent;
    output.tokens.assign(log.tokens.begin() + (log.sent - log.base), log.tokens.end());
    if (log.finish != FinishReason::kNone) {
      output.finish = log.finish;
      output.kv = log.kv;
      log.end_sent = true;
    }
    log.sent = end;
  }
  return outputs;
}

}  // namespace stria
