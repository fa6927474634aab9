// What a process asks of its system.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

namespace stria {

// Differs after every restart and grows with the wall clock; below 2^53 so that JSON readers keep it exact.
uint64_t NewIncarnation();

// CPUs that this process may use: its affinity, cut by the cgroup's quota (v1 and v2), at least 1.
int AvailableCpus();
// The quota's part, apart for tests: `cpu_max` is the text of cgroup v2's cpu.max ("150000 100000", "max 100000"). 0: no limit.
int CpusOfQuota(const std::string& cpu_max);

// Sets environment variables that libgomp reads before main, by starting this binary again when one is missing. Variables that are
// set already win. Returns when everything is set.
void EnsureEnvironment(std::initializer_list<std::pair<const char*, const char*>> variables, char** argv);

// As many open files (connections) as the hard limit allows. Gives the limit.
uint64_t RaiseFileLimit();

std::string HostName();

// SIGTERM and SIGINT: the first calls `stop` on the io_context's thread (drain, then leave), the second ends the process at once with
// status 130. SIGPIPE is ignored.
class StopSignals {
 public:
  StopSignals(boost::asio::io_context& io, std::function<void()> stop);

 private:
  void Wait();
  boost::asio::signal_set signals_;
  std::function<void()> stop_;
  bool stopping_ = false;
};

}  // namespace stria
