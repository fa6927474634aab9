// A worker as the controller sees one: says hello, applies tier vectors, acknowledges. A process of its own, so that tests can
// stop and kill it. Prints "applied EPOCH" after each vector. Usage: fake_worker TIERS_PORT NAME INCARNATION EPOCH [LAYERS]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/codec.h"
#include "services/common/bus.h"

int main(int argc, char** argv) {
  using namespace stria;
  if (argc != 5 && argc != 6) return 2;
  TierHello hello;
  hello.worker = argv[2];
  hello.incarnation = std::strtoull(argv[3], nullptr, 10);
  hello.model = "fingerprint";
  hello.model_name = "Model";
  hello.layers = argc == 6 ? static_cast<uint32_t>(std::atoi(argv[5])) : 3;
  hello.epoch = std::strtoull(argv[4], nullptr, 10);

  BusContext context;
  BusOptions options;
  options.routing_id = PeerId(hello.worker, hello.incarnation);
  auto socket = BusSocket::Connect(context, BusSocket::Type::kDealer, absl::StrCat("tcp://127.0.0.1:", argv[1]), options);
  if (!socket.ok()) return 1;
  auto next_hello = std::chrono::steady_clock::now();
  while (true) {
    while (const auto frame = (*socket)->Receive()) {
      const auto vector = DecodeTierVector(*frame);
      if (!vector.ok() || vector->model != hello.model) return 3;
      if (vector->epoch > hello.epoch) {
        hello.epoch = vector->epoch;
        std::printf("applied %llu\n", static_cast<unsigned long long>(hello.epoch));
        std::fflush(stdout);
      }
      (*socket)->Send(Encode(TierAck{.worker = hello.worker, .incarnation = hello.incarnation, .epoch = hello.epoch}));
    }
    if (std::chrono::steady_clock::now() >= next_hello && (*socket)->Send(Encode(hello))) {
      next_hello = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}
