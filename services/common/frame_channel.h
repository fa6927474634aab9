// Whole frames to and from one peer, without blocking: what a worker's links need of a socket. Tests put a fake here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace stria {

class FrameChannel {
 public:
  virtual ~FrameChannel() = default;
  // False: nobody is connected, the queue is full or the frame is over the cap. It was not sent and will not be; the caller keeps it.
  virtual bool Send(std::string_view frame) = 0;
  // The next frame that came in, if any.
  virtual std::optional<std::string> Receive() = 0;
};

}  // namespace stria
