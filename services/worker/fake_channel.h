// A socket that tests look into: what was sent, what arrives, and whether anyone is connected.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "services/common/frame_channel.h"

namespace stria {

class FakeChannel final : public FrameChannel {
 public:
  bool Send(std::string_view frame) override {
    if (!connected) return false;
    sent.emplace_back(frame);
    return true;
  }
  std::optional<std::string> Receive() override {
    if (arriving.empty()) return std::nullopt;
    std::string frame = std::move(arriving.front());
    arriving.pop_front();
    return frame;
  }

  bool connected = true;
  std::vector<std::string> sent;
  std::deque<std::string> arriving;
};

}  // namespace stria
