// Work that other threads hand to the loop's thread: it runs between two turns. How HTTP looks into the engine, and how a signal
// asks for a drain.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

namespace stria {

class LoopTasks {
 public:
  LoopTasks();
  ~LoopTasks();
  LoopTasks(const LoopTasks&) = delete;
  LoopTasks& operator=(const LoopTasks&) = delete;

  void Post(std::function<void()> task);  // any thread
  void RunAll();                          // the loop's thread
  int fd() const { return fd_; }          // readable while tasks wait, so that a poll wakes up

 private:
  const int fd_;
  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;
};

}  // namespace stria
