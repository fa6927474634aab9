// The controller as a child process, once it serves.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/controller/child_process.h"

namespace stria {

// Waits for something that must come; how long it may take says nothing about what is tested.
inline bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

class RunningController {
 public:
  struct Ports {
    std::string http = "0", telemetry = "0", tiers = "0";  // 0: the kernel chooses
  };

  // nullptr: it ended, or never served. Its log is in `output`.err.
  static std::unique_ptr<RunningController> Start(const std::string& binary, std::vector<std::string> flags, const Ports& ports,
                                                  const std::string& output) {
    flags.insert(flags.begin(), {binary, "--http-port", ports.http, "--telemetry-port", ports.telemetry, "--tiers-port", ports.tiers});
    std::unique_ptr<RunningController> running(new RunningController(std::move(flags), output));
    const bool serves = Eventually([&] { return running->process_.Err().find("\"serving\"") != std::string::npos || running->process_.Ended(); });
    const std::string log = running->process_.Err();
    const size_t line = log.find("\"serving\"");
    if (!serves || line == std::string::npos) return nullptr;
    const auto find = [&](const char* key) {
      const size_t colon = log.find(':', log.find(key, line));
      return log.substr(colon + 1, log.find(' ', colon) - colon - 1);
    };
    running->ports_ = {find(" http="), find(" telemetry="), find(" tiers=")};
    return running;
  }

  ChildProcess& process() { return process_; }
  const Ports& ports() const { return ports_; }

 private:
  RunningController(std::vector<std::string> command, const std::string& output) : process_(std::move(command), output) {}
  ChildProcess process_;
  Ports ports_;
};

}  // namespace stria
