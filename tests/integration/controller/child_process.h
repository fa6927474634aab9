// A child process of a test: started with its output in a file, killed at the end at the latest.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace stria {

class ChildProcess {
 public:
  // stdout goes to `output`.out, stderr to `output`.err.
  ChildProcess(std::vector<std::string> command, std::string output) : output_(std::move(output)) {
    std::vector<char*> argv;
    for (std::string& part : command) argv.push_back(part.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    const auto redirect = [](const std::string& path, int to) {
      dup2(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), to);
    };
    redirect(output_ + ".out", STDOUT_FILENO);
    redirect(output_ + ".err", STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~ChildProcess() { Kill(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Signal(int signal) const { kill(pid_, signal); }
  void Kill() {
    if (pid_ <= 0) return;
    Signal(SIGKILL);
    Wait();
  }
  // Without waiting: whether it has ended by itself. Wait() still gives its exit code.
  bool Ended() const {
    siginfo_t info{};
    return pid_ > 0 && waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
  }
  pid_t pid() const { return pid_; }
  // Exit code; 128 + signal when one ended it.
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string Out() const { return Read(output_ + ".out"); }
  std::string Err() const { return Read(output_ + ".err"); }

 private:
  static std::string Read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string output_;
  pid_t pid_ = -1;
};

}  // namespace stria
