#include "kernels/simt/fiber.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(address, size) (static_cast<void>(address), static_cast<void>(size))
#endif

namespace stria::simt {
namespace {

constexpr size_t kPage = 4096, kStackBytes = 128 << 10;

// What a callee must preserve lies on the stack that is left; `*from` says where.
extern "C" void StriaSwitchStack(void** from, void* to);
asm(R"(
.text
.type StriaSwitchStack, @function
StriaSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size StriaSwitchStack, . - StriaSwitchStack

.type StriaStartFiber, @function
StriaStartFiber:
  movq %r12, %rdi
  callq *%r13
  ud2
.size StriaStartFiber, . - StriaStartFiber
)");
extern "C" void StriaStartFiber();

}  // namespace

Fiber::Fiber()
    : memory_(static_cast<char*>(mmap(nullptr, kPage + kStackBytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  STRIA_CHECK(memory_ != MAP_FAILED);
  STRIA_CHECK(mprotect(memory_, kPage, PROT_NONE) == 0);
}

Fiber::~Fiber() { munmap(memory_, kPage + kStackBytes); }

void Fiber::Start(void (*entry)(void*), void* argument) {
  ASAN_UNPOISON_MEMORY_REGION(memory_ + kPage, kStackBytes);
  // As the switch pops them: r15, r14, r13, r12, rbx, rbp, return address; then the stack is aligned for a call.
  void** top = reinterpret_cast<void**>(memory_ + kPage + kStackBytes) - 9;
  top[2] = reinterpret_cast<void*>(entry);
  top[3] = argument;
  top[4] = top[5] = nullptr;
  top[6] = reinterpret_cast<void*>(&StriaStartFiber);
  inside_ = top;
}

void Fiber::Resume() { StriaSwitchStack(&outside_, inside_); }
void Fiber::Suspend() { StriaSwitchStack(&inside_, outside_); }

}  // namespace stria::simt
