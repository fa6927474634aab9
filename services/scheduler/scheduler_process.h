// The real scheduler process, for tests: on ports from the kernel, with a model file of its own.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "services/scheduler/test_tokenizer.h"

namespace stria {

class SchedulerProcess {
 public:
  explicit SchedulerProcess(std::vector<std::string> flags = {}) {
    const char* folder = std::getenv("TEST_TMPDIR");
    const std::string base = std::string(folder != nullptr ? folder : "/tmp") + "/scheduler." + std::to_string(getpid()) + "." +
                             std::to_string(++count_);
    log_path_ = base + ".log";
    const std::string model = base + ".gguf";
    std::ofstream(model, std::ios::binary) << TestGguf();

    std::vector<std::string> arguments = {"services/scheduler/scheduler", "--model", model, "--http-port", "0", "--workers-port", "0"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, log_path_.c_str(), 01 | 0100 | 01000, 0600);  // write, create, truncate
    STRIA_CHECK(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);

    for (int i = 0; i < 1000 && (http_.empty() || workers_.empty()); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const std::string log = Log();
      const size_t line = log.find("INFO scheduler \"serving\"");
      if (line == std::string::npos || log.find('\n', line) == std::string::npos) continue;
      http_ = Value(log, line, "http=");
      workers_ = Value(log, line, "workers=");
    }
    if (http_.empty()) std::fprintf(stderr, "%s\n", Log().c_str());
    STRIA_CHECK(!http_.empty() && !workers_.empty());
  }
  ~SchedulerProcess() {
    if (pid_ > 0) Stop(SIGKILL);
  }
  SchedulerProcess(const SchedulerProcess&) = delete;
  SchedulerProcess& operator=(const SchedulerProcess&) = delete;

  // Sends the signal, waits for the end, gives the exit status (or -signal).
  int Stop(int signal) {
    kill(pid_, signal);
    int status = 0;
    STRIA_CHECK(waitpid(pid_, &status, 0) == pid_);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string url() const { return "http://" + http_; }
  const std::string& workers() const { return workers_; }  // "tcp://127.0.0.1:PORT"

  std::string Log() const {
    std::ifstream file(log_path_);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

 private:
  static std::string Value(const std::string& log, size_t from, const std::string& key) {
    const size_t at = log.find(key, from);
    if (at == std::string::npos) return "";
    std::string value = log.substr(at + key.size(), log.find_first_of(" \n", at) - at - key.size());
    if (value.size() > 1 && value.front() == '"') value = value.substr(1, value.size() - 2);
    return value;
  }

  static inline int count_ = 0;
  pid_t pid_ = 0;
  std::string log_path_, http_, workers_;
};

}  // namespace stria
