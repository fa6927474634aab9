#include "services/worker/loop_tasks.h"

#include <cstdint>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

namespace stria {

LoopTasks::LoopTasks() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) { STRIA_CHECK(fd_ >= 0); }

LoopTasks::~LoopTasks() { close(fd_); }

void LoopTasks::Post(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  STRIA_CHECK(write(fd_, &one, sizeof one) == sizeof one);
}

void LoopTasks::RunAll() {
  std::vector<std::function<void()>> tasks;
  {
    const std::scoped_lock lock(mutex_);
    tasks.swap(tasks_);
  }
  if (tasks.empty()) return;
  uint64_t count;
  [[maybe_unused]] const ssize_t drained = read(fd_, &count, sizeof count);  // fails only when it is zero already
  for (const std::function<void()>& task : tasks) task();
}

}  // namespace stria
