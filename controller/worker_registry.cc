#include "controller/worker_registry.h"

#include "absl/strings/str_format.h"

namespace stria {
namespace {

constexpr size_t kMaxWorkers = 10'000;
constexpr size_t kMaxNameBytes = 256;
constexpr uint32_t kMaxLayers = 4096, kMaxRanks = 64;
// Epochs grow by one per change, so anything near the end of the range is a lie that would leave no next epoch.
constexpr uint64_t kMaxEpoch = uint64_t{1} << 62;
// At one firing a second this is eleven days of lost frames.
constexpr uint64_t kMaxNumberJump = 1'000'000;
constexpr uint64_t kWindow = 64;

absl::Status CheckHello(const TierHello& hello) {
  if (hello.worker.empty() || hello.worker.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrFormat("worker name of %d bytes", hello.worker.size()));
  }
  if (hello.model.empty() || hello.model.size() > kMaxNameBytes || hello.model_name.size() > kMaxNameBytes ||
      hello.http.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrFormat("worker %s: model fingerprint of %d bytes, name of %d, address of %d",
                                                      hello.worker, hello.model.size(), hello.model_name.size(),
                                                      hello.http.size()));
  }
  if (hello.layers == 0 || hello.layers > kMaxLayers) {
    return absl::InvalidArgumentError(absl::StrFormat("worker %s: %d layers", hello.worker, hello.layers));
  }
  if (hello.ranks == 0 || hello.ranks > kMaxRanks || hello.rank >= hello.ranks) {
    return absl::InvalidArgumentError(
        absl::StrFormat("worker %s: rank %d of %d", hello.worker, hello.rank, hello.ranks));
  }
  if (hello.epoch > kMaxEpoch) {
    return absl::InvalidArgumentError(absl::StrFormat("worker %s: epoch %d", hello.worker, hello.epoch));
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view Name(FrameVerdict verdict) {
  switch (verdict) {
    case FrameVerdict::kAccepted: return "accepted";
    case FrameVerdict::kUnknownWorker: return "unknown_worker";
    case FrameVerdict::kOtherIncarnation: return "other_incarnation";
    case FrameVerdict::kOtherModel: return "other_model";
    case FrameVerdict::kOtherShape: return "other_shape";
    case FrameVerdict::kDuplicate: return "duplicate";
    case FrameVerdict::kOutOfOrder: return "out_of_order";
    case FrameVerdict::kBadNumber: return "bad_number";
    case FrameVerdict::kOldUnit: return "old_unit";
    case FrameVerdict::kFrozen: return "frozen";
  }
  return "?";
}

absl::Status WorkerRegistry::Hello(const TierHello& hello, MonotonicTime now) {
  if (absl::Status status = CheckHello(hello); !status.ok()) return status;
  auto it = workers_.find(hello.worker);
  if (it == workers_.end()) {
    if (workers_.size() >= kMaxWorkers) {
      return absl::ResourceExhaustedError(absl::StrFormat("worker %s: %d workers are known already", hello.worker, kMaxWorkers));
    }
    it = workers_.emplace(hello.worker, WorkerRecord{}).first;
  } else if (it->second.hello.incarnation != hello.incarnation) {
    const WorkerRecord& old = it->second;
    WorkerRecord fresh;
    fresh.gaps = old.gaps;
    fresh.restarts = old.restarts + 1;
    it->second = fresh;
  }
  WorkerRecord& record = it->second;
  record.hello = hello;
  record.applied = hello.epoch;
  record.last_heard = now;
  return absl::OkStatus();
}

bool WorkerRegistry::Ack(const TierAck& ack, MonotonicTime now) {
  WorkerRecord* record = Find(ack.worker);
  if (record == nullptr || record->hello.incarnation != ack.incarnation || ack.epoch > kMaxEpoch) return false;
  record->applied = ack.epoch;
  record->last_heard = now;
  return true;
}

FrameVerdict WorkerRegistry::Judge(const TelemetryHeader& frame, MonotonicTime now) {
  WorkerRecord* record = Find(frame.worker);
  if (record == nullptr) return FrameVerdict::kUnknownWorker;
  const TierHello& hello = record->hello;
  if (frame.incarnation != hello.incarnation) return FrameVerdict::kOtherIncarnation;
  if (frame.model != hello.model) return FrameVerdict::kOtherModel;
  if (frame.rank != hello.rank || frame.ranks != hello.ranks) return FrameVerdict::kOtherShape;
  if (frame.number == 0) return FrameVerdict::kBadNumber;
  if (record->frames > 0 && frame.number <= record->last_number) {
    const uint64_t age = record->last_number - frame.number;
    if (age >= kWindow) return FrameVerdict::kOutOfOrder;
    const uint64_t bit = uint64_t{1} << age;
    if (record->seen_window & bit) return FrameVerdict::kDuplicate;
    record->seen_window |= bit;
    return FrameVerdict::kOutOfOrder;
  }
  if (record->frames > 0) {
    const uint64_t ahead = frame.number - record->last_number;
    if (ahead > kMaxNumberJump) return FrameVerdict::kBadNumber;
    record->gaps += ahead - 1;
    total_gaps_ += ahead - 1;
    record->seen_window = ahead < kWindow ? record->seen_window << ahead : 0;
  }
  record->seen_window |= 1;
  record->last_number = frame.number;
  record->last_frame = now;
  ++record->frames;
  return FrameVerdict::kAccepted;
}

int WorkerRegistry::ForgetSilent(MonotonicTime now, Duration after) {
  return static_cast<int>(std::erase_if(workers_, [&](const auto& entry) { return now - entry.second.last_heard > after; }));
}

WorkerRecord* WorkerRegistry::Find(const std::string& name) {
  const auto it = workers_.find(name);
  return it == workers_.end() ? nullptr : &it->second;
}

}  // namespace stria
