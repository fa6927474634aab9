#include "services/worker/telemetry_link.h"

#include <utility>

#include "proto/codec.h"

namespace stria {

void TelemetryLink::Publish(CanaryFrame frame) { Send(std::move(frame)); }
void TelemetryLink::Publish(QualityFrame frame) { Send(std::move(frame)); }

template <typename Frame>
void TelemetryLink::Send(Frame frame) {
  frame.worker = identity_.name;
  frame.incarnation = identity_.incarnation;
  frame.model = identity_.model;
  frame.number = ++number_;
  if (!channel_.Send(Encode(frame))) ++unsent_;
}

}  // namespace stria
