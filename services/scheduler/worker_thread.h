// A fake worker on a real socket: says hello, takes commands, steps on, until it is destroyed, which is its sudden death.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>

#include "base/check.h"
#include "base/random.h"
#include "proto/codec.h"
#include "scheduler/fake_worker.h"
#include "services/common/bus.h"

namespace stria {

class WorkerThread {
 private:
  template <typename F>
  auto With(F&& f) {
    const std::lock_guard lock(mutex_);
    return f(worker_);
  }

 public:
  // `loss`: share of messages, in both directions, that vanish; as many outputs come twice.
  WorkerThread(const std::string& endpoint, FakeWorkerOptions options, double loss = 0, std::chrono::milliseconds step = std::chrono::milliseconds(2))
      : worker_(options), loss_(loss), step_(step), thread_([this, endpoint, options] { Run(endpoint, options); }) {}
  ~WorkerThread() {
    stop_ = true;
    thread_.join();
  }
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

  size_t sequences() { return With([](FakeWorker& worker) { return worker.sequences(); }); }
  size_t remembered() { return With([](FakeWorker& worker) { return worker.remembered(); }); }
  uint64_t used_bytes() { return With([](FakeWorker& worker) { return worker.used_bytes(); }); }
  uint64_t starts() { return With([](FakeWorker& worker) { return worker.starts(); }); }
  void Pause(bool paused) { paused_ = paused; }  // no steps; messages go on

 private:
  void Run(const std::string& endpoint, const FakeWorkerOptions& options) {
    BusContext context;
    BusOptions bus;
    bus.routing_id = PeerId(options.name, options.incarnation);
    auto socket = BusSocket::Connect(context, BusSocket::Type::kDealer, endpoint, bus);
    STRIA_CHECK(socket.ok());
    bool greeted = false;
    uint64_t draws = 0;
    const auto lost = [&] { return loss_ > 0 && Uniform(7, 1, draws++) < loss_; };
    auto next_step = std::chrono::steady_clock::now(), next_status = next_step;
    for (; !stop_; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      const std::lock_guard lock(mutex_);
      if (!greeted) greeted = (*socket)->Send(Encode(worker_.Hello()));
      while (auto frame = (*socket)->Receive()) {
        const absl::StatusOr<ToWorker> command = DecodeToWorker(*frame);
        STRIA_CHECK(command.ok());
        if (!lost()) worker_.Take(*command);
      }
      const auto now = std::chrono::steady_clock::now();
      if (now >= next_status) {
        next_status = now + std::chrono::milliseconds(100);
        (*socket)->Send(Encode(worker_.Status()));
      }
      if (now >= next_step && !paused_) {
        next_step = now + step_;
        const StepOutputs outputs = worker_.Step(/*resend=*/100);
        if (!outputs.outputs.empty() && !lost()) {
          (*socket)->Send(Encode(outputs));
          if (lost()) (*socket)->Send(Encode(outputs));
        }
      }
    }
  }

  std::mutex mutex_;
  FakeWorker worker_;
  const double loss_;
  const std::chrono::milliseconds step_;
  std::atomic<bool> stop_ = false, paused_ = false;
  std::thread thread_;
};

}  // namespace stria
