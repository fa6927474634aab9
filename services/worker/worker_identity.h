// Who this worker is, on every socket.
#pragma once

#include <cstdint>
#include <string>

namespace stria {

struct WorkerIdentity {
  std::string name;        // stable over restarts
  uint64_t incarnation = 0;
  std::string model;       // fingerprint
  std::string model_name;  // id that clients use
  std::string http;        // where its own HTTP answers, "host:port"
};

}  // namespace stria
