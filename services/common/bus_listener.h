// A bus socket on a Boost.Asio io_context: one thread runs HTTP and sockets together and sleeps when nothing happens.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "services/common/bus.h"

namespace stria {

// Owns the socket; everything runs on the io_context's thread. Destroy it on that thread, or when the io_context no longer
// runs, and before the io_context itself.
class BusListener {
 public:
  // `on_frame` is called for each frame, in order; it may send.
  BusListener(boost::asio::io_context& io, std::unique_ptr<BusSocket> socket, std::function<void(PeerFrame)> on_frame);
  ~BusListener();
  BusListener(const BusListener&) = delete;
  BusListener& operator=(const BusListener&) = delete;

  // Sending can swallow the edge that announces a frame, so sends go through here and look again.
  SendResult SendTo(std::string_view peer, std::string_view frame);
  bool Send(std::string_view frame);
  const BusSocket& socket() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace stria
