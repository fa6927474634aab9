#include "services/common/bus.h"

#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <zmq.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "services/common/zap_gate.h"

namespace stria {
namespace {

// tcp://HOST:PORT → HOST without brackets; empty when it is something else.
std::string HostOf(const std::string& endpoint) {
  constexpr std::string_view kScheme = "tcp://";
  const size_t colon = endpoint.rfind(':');
  if (endpoint.compare(0, kScheme.size(), kScheme) != 0 || colon == std::string::npos || colon <= kScheme.size()) return "";
  std::string host = endpoint.substr(kScheme.size(), colon - kScheme.size());
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host;
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::Status SetOption(void* socket, int option, int value, const char* name) {
  if (zmq_setsockopt(socket, option, &value, sizeof value) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("ZeroMQ option ", name, " = ", value, ": ", zmq_strerror(errno)));
}

absl::Status SetText(void* socket, int option, const std::string& value, const char* name) {
  if (zmq_setsockopt(socket, option, value.data(), value.size()) == 0) return absl::OkStatus();
  // The value may be a secret: only its name is told.
  return absl::InvalidArgumentError(absl::StrCat("ZeroMQ option ", name, ": ", zmq_strerror(errno)));
}

absl::Status CheckSafe(const std::string& endpoint, const std::string& host, const BusSecurity& security) {
  if (IsLoopback(host) || !security.secret_key.empty() || security.insecure) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(endpoint, " is not loopback: it needs CURVE keys, or --insecure on a network that you trust"));
}

int TypeOf(BusSocket::Type type) {
  switch (type) {
    case BusSocket::Type::kRouter: return ZMQ_ROUTER;
    case BusSocket::Type::kDealer: return ZMQ_DEALER;
    case BusSocket::Type::kPub: return ZMQ_PUB;
    case BusSocket::Type::kSub: return ZMQ_SUB;
  }
  std::abort();
}

absl::Status Configure(void* socket, BusSocket::Type type, const BusOptions& options, bool server) {
  const auto set = [socket](int option, int value, const char* name) { return SetOption(socket, option, value, name); };
  STRIA_RETURN_IF_ERROR(set(ZMQ_LINGER, 0, "LINGER"));
  STRIA_RETURN_IF_ERROR(set(ZMQ_SNDHWM, options.queued_messages, "SNDHWM"));
  STRIA_RETURN_IF_ERROR(set(ZMQ_RCVHWM, options.queued_messages, "RCVHWM"));
  STRIA_RETURN_IF_ERROR(set(ZMQ_HEARTBEAT_IVL, options.heartbeat_ms, "HEARTBEAT_IVL"));
  STRIA_RETURN_IF_ERROR(set(ZMQ_HEARTBEAT_TIMEOUT, 3 * options.heartbeat_ms, "HEARTBEAT_TIMEOUT"));
  STRIA_RETURN_IF_ERROR(set(ZMQ_HEARTBEAT_TTL, 3 * options.heartbeat_ms, "HEARTBEAT_TTL"));
  STRIA_RETURN_IF_ERROR(set(ZMQ_RECONNECT_IVL, 50, "RECONNECT_IVL"));
  STRIA_RETURN_IF_ERROR(set(ZMQ_RECONNECT_IVL_MAX, 1000, "RECONNECT_IVL_MAX"));
  STRIA_RETURN_IF_ERROR(set(ZMQ_HANDSHAKE_IVL, 5000, "HANDSHAKE_IVL"));
  const int64_t cap = options.max_frame_bytes;
  if (zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &cap, sizeof cap) != 0) {
    return absl::InternalError(absl::StrCat("ZeroMQ option MAXMSGSIZE = ", cap, ": ", zmq_strerror(errno)));
  }
  switch (type) {
    case BusSocket::Type::kRouter:
      STRIA_RETURN_IF_ERROR(set(ZMQ_ROUTER_MANDATORY, 1, "ROUTER_MANDATORY"));  // else unroutable frames vanish
      STRIA_RETURN_IF_ERROR(set(ZMQ_ROUTER_HANDOVER, 1, "ROUTER_HANDOVER"));
      break;
    case BusSocket::Type::kDealer:
      // Without this, frames pile up for a peer that is not there and reach its successor stale.
      STRIA_RETURN_IF_ERROR(set(ZMQ_IMMEDIATE, 1, "IMMEDIATE"));
      if (!options.routing_id.empty()) STRIA_RETURN_IF_ERROR(SetText(socket, ZMQ_ROUTING_ID, options.routing_id, "ROUTING_ID"));
      break;
    case BusSocket::Type::kSub:
      STRIA_RETURN_IF_ERROR(SetText(socket, ZMQ_SUBSCRIBE, "", "SUBSCRIBE"));
      break;
    case BusSocket::Type::kPub:
      break;
  }
  const BusSecurity& security = options.security;
  if (security.secret_key.empty()) return absl::OkStatus();
  STRIA_ASSIGN_OR_RETURN(const std::string public_key, PublicKeyOf(security.secret_key));
  STRIA_RETURN_IF_ERROR(SetText(socket, ZMQ_CURVE_SECRETKEY, security.secret_key, "CURVE_SECRETKEY"));
  if (server) {
    STRIA_RETURN_IF_ERROR(SetText(socket, ZMQ_ZAP_DOMAIN, "stria", "ZAP_DOMAIN"));
    return set(ZMQ_CURVE_SERVER, 1, "CURVE_SERVER");
  }
  STRIA_RETURN_IF_ERROR(SetText(socket, ZMQ_CURVE_PUBLICKEY, public_key, "CURVE_PUBLICKEY"));
  return SetText(socket, ZMQ_CURVE_SERVERKEY, security.server_key, "CURVE_SERVERKEY");
}

// A received zmq_msg_t, closed at the end of its scope.
class Message {
 public:
  Message() { zmq_msg_init(&message_); }
  ~Message() { zmq_msg_close(&message_); }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  bool Receive(void* socket) {
    while (zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT) < 0) {
      if (errno != EINTR) return false;
    }
    return true;
  }
  bool more() { return zmq_msg_more(&message_) != 0; }
  std::string text() { return std::string(static_cast<const char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)); }

 private:
  zmq_msg_t message_;
};

int SendPart(void* socket, std::string_view part, int flags) {
  int sent;
  do {
    sent = zmq_send(socket, part.data(), part.size(), ZMQ_DONTWAIT | flags);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

}  // namespace

BusContext::BusContext(std::optional<PublicKeys> allowed) : handle_(zmq_ctx_new()) {
  STRIA_CHECK(handle_ != nullptr);
  if (allowed) gate_ = std::make_unique<ZapGate>(handle_, *std::move(allowed));
}

uint64_t BusContext::refused_peers() const { return gate_ == nullptr ? 0 : gate_->refused(); }

BusContext::~BusContext() {
  zmq_ctx_shutdown(handle_);
  gate_.reset();
  while (zmq_ctx_term(handle_) != 0 && errno == EINTR) {
  }
}

std::string PeerId(std::string_view worker, uint64_t incarnation) {
  constexpr size_t kMaxRoutingId = 255;
  const std::string suffix = absl::StrCat("#", incarnation);
  return std::string(worker.substr(0, kMaxRoutingId - suffix.size())) + suffix;
}

BusSocket::BusSocket(void* handle, Type type, BusOptions options) : handle_(handle), type_(type), options_(std::move(options)) {}

BusSocket::~BusSocket() { zmq_close(handle_); }

absl::StatusOr<std::unique_ptr<BusSocket>> BusSocket::Open(BusContext& context, Type type, const BusOptions& options, bool server) {
  void* handle = zmq_socket(context.handle(), TypeOf(type));
  if (handle == nullptr) return absl::ResourceExhaustedError(absl::StrCat("ZeroMQ socket: ", zmq_strerror(errno)));
  std::unique_ptr<BusSocket> socket(new BusSocket(handle, type, options));
  STRIA_RETURN_IF_ERROR(Configure(handle, type, options, server));
  return socket;
}

absl::StatusOr<std::unique_ptr<BusSocket>> BusSocket::Bind(BusContext& context, Type type, const std::string& endpoint,
                                                           const BusOptions& options) {
  const std::string host = HostOf(endpoint);
  if (host.empty()) return absl::InvalidArgumentError(absl::StrCat("not an address to bind, tcp://ADDRESS:PORT: ", endpoint));
  STRIA_RETURN_IF_ERROR(CheckSafe(endpoint, host, options.security));
  STRIA_CHECK(options.security.secret_key.empty() || context.gated());  // without a gate libzmq lets every key in
  STRIA_ASSIGN_OR_RETURN(std::unique_ptr<BusSocket> socket, Open(context, type, options, /*server=*/true));
  // Only for such an address: otherwise an IPv4 one would be reported, and bound, in its IPv6 form.
  if (host.find(':') != std::string::npos) STRIA_RETURN_IF_ERROR(SetOption(socket->handle_, ZMQ_IPV6, 1, "IPV6"));
  if (zmq_bind(socket->handle_, endpoint.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("binding ", endpoint, ": ", zmq_strerror(errno)));
  }
  char bound[256];
  size_t size = sizeof bound;
  STRIA_CHECK(zmq_getsockopt(socket->handle_, ZMQ_LAST_ENDPOINT, bound, &size) == 0);
  socket->endpoint_.assign(bound, size - 1);
  return socket;
}

absl::StatusOr<std::unique_ptr<BusSocket>> BusSocket::Connect(BusContext& context, Type type, const std::string& endpoint,
                                                              const BusOptions& options) {
  const std::string host = HostOf(endpoint);
  if (host.empty()) return absl::InvalidArgumentError(absl::StrCat("not an address to connect to, tcp://HOST:PORT: ", endpoint));
  STRIA_RETURN_IF_ERROR(CheckSafe(endpoint, host, options.security));
  STRIA_ASSIGN_OR_RETURN(std::unique_ptr<BusSocket> socket, Open(context, type, options, /*server=*/false));
  STRIA_RETURN_IF_ERROR(SetOption(socket->handle_, ZMQ_IPV6, 1, "IPV6"));  // a name may resolve to either
  if (zmq_connect(socket->handle_, endpoint.c_str()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("connecting to ", endpoint, ": ", zmq_strerror(errno)));
  }
  socket->endpoint_ = endpoint;
  return socket;
}

void BusSocket::CheckOwner() {
  const std::thread::id self = std::this_thread::get_id();
  if (owner_ == std::thread::id()) owner_ = self;
  STRIA_CHECK(owner_ == self);
}

bool BusSocket::Send(std::string_view frame) {
  CheckOwner();
  STRIA_CHECK(type_ == Type::kDealer || type_ == Type::kPub);
  if (frame.size() > static_cast<size_t>(options_.max_frame_bytes)) return false;
  return SendPart(handle_, frame, 0) >= 0;
}

SendResult BusSocket::SendTo(std::string_view peer, std::string_view frame) {
  CheckOwner();
  STRIA_CHECK(type_ == Type::kRouter);
  if (frame.size() > static_cast<size_t>(options_.max_frame_bytes)) return SendResult::kTooLarge;
  if (SendPart(handle_, peer, ZMQ_SNDMORE) < 0) return errno == EAGAIN ? SendResult::kFull : SendResult::kNoPeer;
  // The queue took the first part, so it takes the message; a peer that left in between makes the rest vanish.
  return SendPart(handle_, frame, 0) >= 0 ? SendResult::kSent : SendResult::kNoPeer;
}

std::optional<PeerFrame> BusSocket::ReceiveFrom() {
  CheckOwner();
  if (type_ == Type::kPub) return std::nullopt;
  for (;;) {
    PeerFrame result;
    Message part;
    if (!part.Receive(handle_)) return std::nullopt;
    if (type_ == Type::kRouter) {
      result.peer = part.text();
      if (!part.more() || !part.Receive(handle_)) continue;
    }
    if (!part.more()) {
      result.frame = part.text();
      return result;
    }
    // Several parts are nobody's message: skip them whole.
    while (part.more() && part.Receive(handle_)) {
    }
  }
}

std::optional<std::string> BusSocket::Receive() {
  std::optional<PeerFrame> received = ReceiveFrom();
  if (!received) return std::nullopt;
  return std::move(received->frame);
}

uint16_t BusSocket::port() const {
  const size_t colon = endpoint_.rfind(':');
  return static_cast<uint16_t>(std::strtoul(endpoint_.c_str() + colon + 1, nullptr, 10));
}

int BusSocket::fd() const {
  int fd = -1;
  size_t size = sizeof fd;
  STRIA_CHECK(zmq_getsockopt(handle_, ZMQ_FD, &fd, &size) == 0);
  return fd;
}

bool BusSocket::readable() const {
  int events = 0;
  size_t size = sizeof events;
  if (zmq_getsockopt(handle_, ZMQ_EVENTS, &events, &size) != 0) return false;
  return (events & ZMQ_POLLIN) != 0;
}

void WaitReadable(std::initializer_list<BusSocket*> sockets, int fd, Duration most) {
  std::vector<zmq_pollitem_t> items;
  for (const BusSocket* socket : sockets) items.push_back({socket->handle(), 0, ZMQ_POLLIN, 0});
  items.push_back({nullptr, fd, ZMQ_POLLIN, 0});
  // Rounded up: a wait that ends just before its time would be followed by one of zero.
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(most).count();
  zmq_poll(items.data(), static_cast<int>(items.size()), milliseconds);
}

}  // namespace stria
