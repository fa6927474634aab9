// ZeroMQ as Stria uses it: one frame a message, never a blocking call, never an unbounded queue. LINGER, HWM, heartbeats and
// MAXMSGSIZE are always set. A socket belongs to the thread that first sends or receives on it (checked).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "proto/codec.h"
#include "services/common/curve.h"
#include "services/common/frame_channel.h"

namespace stria {

class ZapGate;

inline constexpr char kPeersRefusedHelp[] = "Handshakes of peers whose CURVE key is not on the list.";

// libzmq's context with one I/O thread: one per process, outlives its sockets.
class BusContext {
 public:
  // With a list, bound sockets that have a CURVE key let in the peers with one of these keys, and nobody else.
  explicit BusContext(std::optional<PublicKeys> allowed = std::nullopt);
  ~BusContext();
  BusContext(const BusContext&) = delete;
  BusContext& operator=(const BusContext&) = delete;
  void* handle() const { return handle_; }
  bool gated() const { return gate_ != nullptr; }
  uint64_t refused_peers() const;  // handshakes with a key that is not on the list

 private:
  void* handle_;
  std::unique_ptr<ZapGate> gate_;
};

// How a socket proves who it is. With a secret key the link is encrypted and a peer without one gets nothing.
struct BusSecurity {
  bool insecure = false;   // the operator said that a plain socket off loopback is fine
  std::string secret_key;  // this process's; binding with one needs a context with a list of allowed keys (checked)
  std::string server_key;  // connecting: the public key of the process that is dialled
};

struct BusOptions {
  BusSecurity security;
  int queued_messages = 4096;   // high-water mark, each direction
  int heartbeat_ms = 1000;      // a peer silent for three of them is disconnected
  int max_frame_bytes = static_cast<int>(kMaxFrameBytes);
  std::string routing_id;       // DEALER: what the ROUTER calls this peer, PeerId(); empty: the ROUTER makes one up
};

// The routing id of a worker process on the sequences and tiers sockets: the same after a reconnect, another after a restart.
std::string PeerId(std::string_view worker, uint64_t incarnation);

enum class SendResult {
  kSent,      // queued for the peer; may still be lost with its connection
  kFull,      // the peer does not keep up
  kNoPeer,    // nobody by that name is connected
  kTooLarge,  // over max_frame_bytes
};

struct PeerFrame {
  std::string peer;  // ROUTER: routing id; else empty
  std::string frame;
};

class BusSocket final : public FrameChannel {
 public:
  enum class Type { kRouter, kDealer, kPub, kSub };

  // "tcp://ADDRESS:PORT"; port 0 or * lets the kernel choose, see endpoint(). Both: PermissionDenied for an address off loopback without
  // keys or `insecure`; InvalidArgument and Unavailable name the endpoint. SUB takes everything.
  static absl::StatusOr<std::unique_ptr<BusSocket>> Bind(BusContext& context, Type type, const std::string& endpoint,
                                                         const BusOptions& options = {});
  // Returns at once; libzmq connects, and connects again, in the background. While nobody is there Send refuses.
  static absl::StatusOr<std::unique_ptr<BusSocket>> Connect(BusContext& context, Type type, const std::string& endpoint,
                                                            const BusOptions& options = {});
  ~BusSocket() override;
  BusSocket(const BusSocket&) = delete;
  BusSocket& operator=(const BusSocket&) = delete;

  // DEALER and PUB. (PUB: true although subscribers may miss it; that is why telemetry is numbered.)
  bool Send(std::string_view frame) override;
  std::optional<std::string> Receive() override;

  // ROUTER. A new connection under a known routing id replaces the old one.
  SendResult SendTo(std::string_view peer, std::string_view frame);
  std::optional<PeerFrame> ReceiveFrom();  // any type that receives

  const std::string& endpoint() const { return endpoint_; }  // the bound one, with its port
  uint16_t port() const;                                     // of endpoint()
  void* handle() const { return handle_; }
  int fd() const;         // becomes readable when events may have changed (edge-triggered: use BusListener)
  bool readable() const;  // a frame waits. Clears the fd's edge

 private:
  BusSocket(void* handle, Type type, BusOptions options);
  static absl::StatusOr<std::unique_ptr<BusSocket>> Open(BusContext& context, Type type, const BusOptions& options, bool server);
  void CheckOwner();

  void* handle_;
  Type type_;
  BusOptions options_;
  std::string endpoint_;
  std::thread::id owner_;
};

// Sleeps until a frame waits on one of the sockets, `fd` is readable, or the time is up. Only on the sockets' owner thread.
void WaitReadable(std::initializer_list<BusSocket*> sockets, int fd, Duration most);

}  // namespace stria
