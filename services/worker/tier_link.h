// The worker's end of the tiers socket: says who it is and what it runs under, takes the newest tier vector, and acknowledges it
// once it is in force. Tells what the cache holds when asked. Without a controller the last vector stays. One thread: the loop's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "proto/tiers.h"
#include "services/common/frame_channel.h"
#include "services/worker/worker_identity.h"
#include "worker/engine.h"

namespace stria {

struct TierLinkStats {
  uint64_t applied = 0;
  uint64_t stale = 0;           // an older epoch than the one in force
  uint64_t refused_frames = 0;  // malformed, of another model, another number of layers
};

class TierLink {
 public:
  // channel, engine and clock outlive this.
  TierLink(const WorkerIdentity& identity, uint32_t layers, FrameChannel& channel, Engine& engine, const Clock& clock,
           Duration hello_every = std::chrono::seconds(1));

  // Between two steps: reads what has arrived and puts the newest vector in force.
  void TakeAndApply();
  void Tick();
  MonotonicTime next_tick() const { return next_hello_; }

  const TierLinkStats& stats() const { return stats_; }
  std::string TakeNote();  // for the log, empty mostly

 private:
  void Take(const std::string& frame, std::optional<TierVector>& newest);
  void Refuse(std::string why);
  void Acknowledge();
  void Answer(const CacheQuery& query);

  TierHello hello_;
  FrameChannel& channel_;
  Engine& engine_;
  const Clock& clock_;
  const Duration hello_every_;
  MonotonicTime next_hello_;
  TierLinkStats stats_;
  std::string note_;
};

}  // namespace stria
