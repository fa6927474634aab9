#include "services/common/zap_gate.h"

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include <zmq.h>

#include "base/check.h"

namespace stria {
namespace {

// Part numbers of a request, in ZAP 1.0's order.
enum { kVersion, kRequestId, kDomain, kAddress, kRoutingId, kMechanism, kCredential, kParts };

// All parts of one request; false when the context ends.
bool ReceiveParts(void* socket, std::vector<std::string>* parts) {
  parts->clear();
  int more = 1;
  while (more != 0) {
    zmq_msg_t part;
    zmq_msg_init(&part);
    int received;
    do {
      received = zmq_msg_recv(&part, socket, 0);
    } while (received < 0 && errno == EINTR);
    if (received >= 0) parts->emplace_back(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
    more = received >= 0 ? zmq_msg_more(&part) : 0;
    zmq_msg_close(&part);
    if (received < 0) return false;
  }
  return true;
}

void Reply(void* socket, const std::vector<std::string>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    zmq_send(socket, parts[i].data(), parts[i].size(), i + 1 < parts.size() ? ZMQ_SNDMORE : 0);
  }
}

}  // namespace

ZapGate::ZapGate(void* context, PublicKeys allowed) : allowed_(std::move(allowed)) {
  // Bound here, so that no socket can be bound before somebody answers; used by the thread alone from then on.
  void* socket = zmq_socket(context, ZMQ_REP);
  STRIA_CHECK(socket != nullptr);
  const int linger = 0;
  zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
  STRIA_CHECK(zmq_bind(socket, "inproc://zeromq.zap.01") == 0);
  thread_ = std::thread([this, socket] { Run(socket); });
}

ZapGate::~ZapGate() { thread_.join(); }

void ZapGate::Run(void* socket) {
  std::vector<std::string> request;
  while (ReceiveParts(socket, &request)) {
    if (request.size() != kParts || request[kVersion] != "1.0" || request[kMechanism] != "CURVE") {
      Reply(socket, {"1.0", request.size() > kRequestId ? request[kRequestId] : "", "500", "not a CURVE request", "", ""});
      continue;
    }
    const std::string* name = allowed_.NameOf(request[kCredential]);
    if (name == nullptr) {
      ++refused_;
      // 300, not 400: after a 400 libzmq's client gives up for good, and a worker whose key is put on the list later would have to be
      // restarted to be let in.
      Reply(socket, {"1.0", request[kRequestId], "300", "this key is not on the list", "", ""});
    } else {
      Reply(socket, {"1.0", request[kRequestId], "200", "OK", *name, ""});
    }
  }
  zmq_close(socket);
}

}  // namespace stria
