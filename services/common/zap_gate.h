// Answers libzmq's question, for every peer that shakes hands on a bound CURVE socket of one context, whether it may come in (ZAP,
// rfc.zeromq.org/spec/27). A thread of its own, which sleeps between handshakes.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "services/common/curve.h"

namespace stria {

class ZapGate {
 public:
  // Before the context's first bound socket. `context` is libzmq's handle.
  ZapGate(void* context, PublicKeys allowed);
  // After zmq_ctx_shutdown(context), which ends the thread.
  ~ZapGate();
  ZapGate(const ZapGate&) = delete;
  ZapGate& operator=(const ZapGate&) = delete;

  uint64_t refused() const { return refused_; }  // handshakes with a key that is not on the list; peers try again for ever

 private:
  void Run(void* socket);

  const PublicKeys allowed_;
  std::atomic<uint64_t> refused_ = 0;
  std::thread thread_;
};

}  // namespace stria
