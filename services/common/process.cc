#include "services/common/process.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

namespace stria {
namespace {

// The quota of this process's cgroup (v2) or of the CPU controller (v1), as CpusOfQuota; the tightest of the path's ancestors.
int CgroupCpus() {
  int best = 0;
  const auto take = [&best](int cpus) {
    if (cpus > 0) best = best == 0 ? cpus : std::min(best, cpus);
  };
  const auto read = [](const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
  };
  std::ifstream own("/proc/self/cgroup");
  for (std::string line; std::getline(own, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    std::string path = line.substr(3);
    for (;;) {
      take(CpusOfQuota(read("/sys/fs/cgroup" + (path == "/" ? "" : path) + "/cpu.max")));
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
  }
  const std::string quota = read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  if (!quota.empty() && quota[0] != '-') take(CpusOfQuota(quota + " " + read("/sys/fs/cgroup/cpu/cpu.cfs_period_us")));
  return best;
}

}  // namespace

uint64_t NewIncarnation() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const uint64_t milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
  uint16_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) random = static_cast<uint16_t>(getpid());
  return (milliseconds << 12 | (random & 0xfff)) & ((uint64_t{1} << 53) - 1);
}

int CpusOfQuota(const std::string& cpu_max) {
  std::istringstream text(cpu_max);
  double quota = 0, period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return 0;  // "max …", or no such file
  // Rounded down: a thread that is throttled holds the others at the next barrier.
  return std::max(1, static_cast<int>(quota / period + 1e-6));
}

int AvailableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int affinity = sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
  const int quota = CgroupCpus();
  return quota > 0 ? std::min(affinity, quota) : affinity;
}

void EnsureEnvironment(std::initializer_list<std::pair<const char*, const char*>> variables, char** argv) {
  bool missing = false;
  for (const auto& [name, value] : variables) {
    if (std::getenv(name) != nullptr) continue;
    setenv(name, value, 0);
    missing = true;
  }
  if (!missing) return;
  execv("/proc/self/exe", argv);
  std::perror("starting again with OpenMP's settings; going on without");
}

uint64_t RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

std::string HostName() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

StopSignals::StopSignals(boost::asio::io_context& io, std::function<void()> stop)
    : signals_(io, SIGTERM, SIGINT), stop_(std::move(stop)) {
  std::signal(SIGPIPE, SIG_IGN);
  Wait();
}

void StopSignals::Wait() {
  signals_.async_wait([this](boost::system::error_code error, int) {
    if (error) return;
    if (std::exchange(stopping_, true)) std::_Exit(130);
    Wait();
    stop_();
  });
}

}  // namespace stria
