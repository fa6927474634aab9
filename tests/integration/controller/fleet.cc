#include "tests/integration/controller/fleet.h"

#include <chrono>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "proto/codec.h"

namespace stria {
namespace {

constexpr int kWorkersPerContext = 250;
constexpr uint64_t kIncarnation = 1;
constexpr char kModel[] = "fingerprint";  // fake_worker's too

MonotonicTime Now() { return std::chrono::steady_clock::now(); }

std::unique_ptr<BusSocket> Connect(BusContext& context, BusSocket::Type type, const std::string& port, const BusOptions& options) {
  auto socket = BusSocket::Connect(context, type, absl::StrCat("tcp://127.0.0.1:", port), options);
  STRIA_CHECK(socket.ok());
  return *std::move(socket);
}

}  // namespace

Fleet::Fleet(const RunningController::Ports& ports, FleetOptions options) : options_(options) {
  const MonotonicTime start = Now();
  for (int i = 0; i < options_.workers; ++i) {
    if (i % kWorkersPerContext == 0) contexts_.push_back(std::make_unique<BusContext>());
    Worker& worker = workers_.emplace_back();
    worker.name = absl::StrCat("w", i);
    BusOptions tiers;
    tiers.routing_id = PeerId(worker.name, kIncarnation);
    worker.tiers = Connect(*contexts_.back(), BusSocket::Type::kDealer, ports.tiers, tiers);
    worker.telemetry = Connect(*contexts_.back(), BusSocket::Type::kPub, ports.telemetry, {});
    // Spread over the second, as a fleet's are.
    worker.next_hello = worker.next_firing = start + options_.firing_every * i / options_.workers;
  }
}

void Fleet::Run(const std::function<bool()>& done) {
  while (!done()) {
    const MonotonicTime now = Now();
    for (Worker& worker : workers_) Turn(worker, now);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void Fleet::Turn(Worker& worker, MonotonicTime now) {
  while (const auto frame = worker.tiers->Receive()) {
    const auto message = DecodeFromController(*frame);
    STRIA_CHECK(message.ok());
    const auto* vector = std::get_if<TierVector>(&*message);
    if (vector == nullptr) continue;  // somebody watches and asks what the cache holds
    if (vector->epoch > worker.epoch) {
      worker.epoch = vector->epoch;
      worker.applied_at[worker.epoch] = Now();
    }
    worker.tiers->Send(Encode(TierAck{.worker = worker.name, .incarnation = kIncarnation, .epoch = worker.epoch}));
  }
  if (now >= worker.next_hello) {
    TierHello hello;
    hello.worker = worker.name;
    hello.incarnation = kIncarnation;
    hello.model = kModel;
    hello.model_name = "Model";
    hello.layers = options_.layers;
    hello.epoch = worker.epoch;
    if (worker.tiers->Send(Encode(hello))) worker.next_hello += std::chrono::seconds(1);
  }
  if (now >= worker.next_firing) {
    worker.next_firing += options_.firing_every;
    if (firing_ && worker.telemetry->Send(Firing(worker))) ++fired_;
  }
}

// Readings that lie far from any threshold in use, with a spread of 20 %: at steady state no layer changes.
std::string Fleet::Firing(Worker& worker) {
  CanaryFrame frame;
  frame.worker = worker.name;
  frame.incarnation = kIncarnation;
  frame.model = kModel;
  frame.number = ++worker.number;
  frame.epoch = worker.epoch;
  frame.step = 64 * worker.number;
  frame.sequences = 8;
  frame.tokens = 8 * 4096;
  frame.cost_seconds = 1e-4;
  for (uint32_t layer = 0; layer < options_.layers; ++layer) {
    const float spread = static_cast<float>(0.8 + 0.4 * Uniform(17, layer, fired_));
    frame.readings.push_back({.layer = layer, .kl = {0.3f * spread, 0.01f * spread, 0.0005f * spread}});
  }
  return Encode(frame);
}

int Fleet::Applied(uint64_t epoch) const {
  int count = 0;
  for (const Worker& worker : workers_) count += worker.epoch >= epoch;
  return count;
}

std::vector<double> Fleet::Delays(uint64_t epoch, MonotonicTime since) const {
  std::vector<double> delays;
  for (const Worker& worker : workers_) {
    const auto first = worker.applied_at.upper_bound(epoch);
    if (first != worker.applied_at.end()) delays.push_back(std::chrono::duration<double>(first->second - since).count());
  }
  return delays;
}

}  // namespace stria
