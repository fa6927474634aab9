// Which workers exist, what they run under, and which of their telemetry frames can be believed. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "proto/telemetry.h"
#include "proto/tiers.h"

namespace stria {

// What became of a telemetry frame.
enum class FrameVerdict : uint8_t {
  kAccepted,
  kUnknownWorker,     // it never said hello: its model and shape are unknown
  kOtherIncarnation,  // from before the worker's restart, or from an impostor
  kOtherModel,
  kOtherShape,        // rank, ranks or layer numbers do not fit what the hello said
  kDuplicate,         // this number was seen
  kOutOfOrder,        // not seen, but newer frames were already used
  kBadNumber,         // 0, or absurdly far ahead
  kOldUnit,           // taken under another reference length
  kFrozen,            // sound, but the vector is held
};
inline constexpr int kFrameVerdicts = 10;
std::string_view Name(FrameVerdict verdict);  // for metrics labels: "duplicate"

// A worker is silent, for a rule or for a person, when nothing was heard for this long.
inline constexpr Duration kSilence = std::chrono::seconds(10);

struct WorkerRecord {
  TierHello hello;               // the latest
  uint64_t applied = 0;          // epoch that it last said it applied; 0: none
  MonotonicTime last_heard{};    // hello or ack
  MonotonicTime last_frame{};    // telemetry; meaningless while frames == 0
  uint64_t frames = 0;           // accepted or frozen, of this incarnation
  uint64_t gaps = 0;             // frames that never came, of all incarnations
  uint64_t restarts = 0;         // changes of incarnation seen
  uint64_t last_number = 0;
  uint64_t seen_window = 0;      // bit i: number last_number − i was seen
  // Delivery of tier vectors.
  uint64_t sent = 0;             // epoch last sent
  uint32_t attempts = 0;         // sends of it
  MonotonicTime last_send{}, next_send{};
};

class WorkerRegistry {
 public:
  // Registers or refreshes. InvalidArgument names what is impossible; the registry is then unchanged.
  absl::Status Hello(const TierHello& hello, MonotonicTime now);

  // False: not from a known incarnation, ignored.
  bool Ack(const TierAck& ack, MonotonicTime now);

  // Judges a frame by its header and updates numbers, window and gaps. Gaps before the first frame seen are unknowable.
  FrameVerdict Judge(const TelemetryHeader& frame, MonotonicTime now);

  // Drops workers not heard of for `after`; returns how many.
  int ForgetSilent(MonotonicTime now, Duration after);

  WorkerRecord* Find(const std::string& name);
  // Frames that never came, of every worker ever known.
  uint64_t total_gaps() const { return total_gaps_; }
  // By name, so that lists are stable for readers.
  std::map<std::string, WorkerRecord>& workers() { return workers_; }
  const std::map<std::string, WorkerRecord>& workers() const { return workers_; }

 private:
  std::map<std::string, WorkerRecord> workers_;
  uint64_t total_gaps_ = 0;
};

}  // namespace stria
