#include "services/common/bus_listener.h"

#include <utility>

#include <boost/asio/post.hpp>

namespace stria {

// libzmq's fd is a bell, not a data source: it rings when events may have changed, and any call on the socket may silence it.
// So after every ring and every send, frames are taken until none is left.
struct BusListener::State : std::enable_shared_from_this<State> {
  static constexpr int kBatch = 64;  // then others on the io_context get their turn

  State(boost::asio::io_context& io, std::unique_ptr<BusSocket> socket, std::function<void(PeerFrame)> on_frame)
      : io(io), socket(std::move(socket)), on_frame(std::move(on_frame)), bell(io, this->socket->fd()) {}

  void Listen() {
    bell.async_wait(boost::asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](boost::system::error_code error) {
      if (error || self->closed) return;
      self->Drain();
      if (!self->closed) self->Listen();
    });
  }

  void Drain() {
    drain_posted = false;
    for (int taken = 0; !closed; ++taken) {
      if (taken == kBatch) return PostDrain();
      std::optional<PeerFrame> frame = socket->ReceiveFrom();
      if (!frame) {
        if (!socket->readable()) return;  // asking also takes the bell's ring
        continue;
      }
      on_frame(*std::move(frame));
    }
  }

  void PostDrain() {
    if (drain_posted || closed) return;
    drain_posted = true;
    boost::asio::post(io, [self = shared_from_this()] {
      if (!self->closed) self->Drain();
    });
  }

  boost::asio::io_context& io;
  std::unique_ptr<BusSocket> socket;
  std::function<void(PeerFrame)> on_frame;
  boost::asio::posix::stream_descriptor bell;
  bool closed = false;
  bool drain_posted = false;
};

BusListener::BusListener(boost::asio::io_context& io, std::unique_ptr<BusSocket> socket, std::function<void(PeerFrame)> on_frame)
    : state_(std::make_shared<State>(io, std::move(socket), std::move(on_frame))) {
  state_->Listen();
  state_->PostDrain();
}

BusListener::~BusListener() {
  state_->closed = true;
  state_->bell.release();  // libzmq owns the fd
  state_->socket.reset();
}

SendResult BusListener::SendTo(std::string_view peer, std::string_view frame) {
  const SendResult result = state_->socket->SendTo(peer, frame);
  if (state_->socket->readable()) state_->PostDrain();
  return result;
}

bool BusListener::Send(std::string_view frame) {
  const bool sent = state_->socket->Send(frame);
  if (state_->socket->readable()) state_->PostDrain();
  return sent;
}

const BusSocket& BusListener::socket() const { return *state_->socket; }

}  // namespace stria
