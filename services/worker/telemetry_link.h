// Publishes canary firings and measured quality, numbered without gaps in what was measured, so that gaps in what arrives can be counted.
#pragma once

#include <cstdint>

#include "proto/telemetry.h"
#include "services/common/frame_channel.h"
#include "services/worker/worker_identity.h"

namespace stria {

class TelemetryLink {
 public:
  TelemetryLink(const WorkerIdentity& identity, FrameChannel& channel) : identity_(identity), channel_(channel) {}

  // Fills in who and which number. A frame that cannot be sent is lost, its number is not used again.
  void Publish(CanaryFrame frame);
  void Publish(QualityFrame frame);

  uint64_t published() const { return number_; }
  uint64_t unsent() const { return unsent_; }

 private:
  template <typename Frame>
  void Send(Frame frame);

  const WorkerIdentity identity_;
  FrameChannel& channel_;
  uint64_t number_ = 0;
  uint64_t unsent_ = 0;
};

}  // namespace stria
