// A stack of its own for each lane of a block, and the switch between stacks. x86-64, System V. A switch costs a few
// nanoseconds; ucontext's asks the kernel about signals and costs half a microsecond.
#pragma once

#include <cstddef>

namespace stria::simt {

class Fiber {
 public:
  Fiber();  // its stack ends in an unmapped page
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next Resume calls entry(argument) on this stack, from its start: what ran on it before is forgotten. `entry`
  // must not return, and ends by a Suspend after which nobody resumes it.
  void Start(void (*entry)(void*), void* argument);

  // To the fiber from its creator's stack, until it suspends; and back, called on the fiber's stack.
  void Resume();
  void Suspend();

 private:
  char* const memory_;
  void* inside_ = nullptr;   // the stack pointer to go on at
  void* outside_ = nullptr;  // that of whoever resumed it
};

}  // namespace stria::simt
