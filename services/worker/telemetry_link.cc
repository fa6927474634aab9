#include "services/worker/telemetry_link.h"

#include "proto/codec.h"

namespace stria {

void TelemetryLink::Publish(CanaryFrame frame) {
  frame.worker = identity_.name;
  frame.incarnation = identity_.incarnation;
  frame.model = identity_.model;
  frame.number = ++number_;
  if (!channel_.Send(Encode(frame))) ++unsent_;
}

}  // namespace stria
