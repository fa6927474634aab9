// Runs device code (kernels/**/*.cuh) on the host, for tests: one fiber per lane, one rendezvous per collective. A kernel
// that needs luck on a GPU fails here every time, with the lines that disagree.
//
// Reported: barriers and warp collectives that lanes meet at different lines, masks without the caller, collectives that
// name a lane which has returned, shuffles from a lane outside the mask, misaligned loads, deadlock. A read past a
// GuardedBuffer or past shared memory faults. Shared memory starts as NaN, asynchronous copies land only when they are
// waited for, and lanes run in three orders, so that a missing barrier or wait shows as a wrong number in one of them.
// Not seen: races that no order of whole stretches between collectives reveals; memory ordering between blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <string>

namespace stria::simt {

inline constexpr int kWarp = 32;

enum class Order { kForward, kReverse, kShuffled };
inline constexpr Order kAllOrders[] = {Order::kForward, Order::kReverse, Order::kShuffled};
inline const char* Name(Order order) {
  return order == Order::kForward ? "forward" : order == Order::kReverse ? "reverse" : "shuffled";
}

struct Index3 {
  int x = 1, y = 1, z = 1;
};

struct Launch {
  Index3 grid;
  int threads = kWarp;  // a multiple of 32
  Order order = Order::kForward;
};

// Runs body(shared) on every lane of every block. The first error, or nothing; what the kernel wrote before stays.
std::string RunGrid(const Launch& launch, size_t shared_bytes, const std::function<void(void*)>& body);

template <class SharedStorage, class Kernel>
std::string Run(const Launch& launch, const Kernel& kernel) {
  return RunGrid(launch, sizeof(SharedStorage),
                 [&](void* shared) { kernel(*static_cast<SharedStorage*>(shared)); });
}

// A place in a kernel's source.
using Site = std::source_location;

// ---- What device.cuh is made of ----

int Thread();
int Threads();
Index3 Block();

// Ends the block with this error, at the lane that found it.
[[noreturn]] void Fail(Site site, const std::string& what);

// Waits for all lanes of the block.
void Barrier(Site site);

// Waits for the lanes in `mask`; the last to arrive calls finish(operands of the warp's lanes, mask, site) for all.
using Finish = void (*)(void* const* operands, uint32_t mask, Site site);
void Collective(const char* name, uint32_t mask, void* operand, Finish finish, Site site);

// `source` is where the lane reads. Called by ready-made shuffles in device.cuh.
template <class T>
T ShuffleFrom(uint32_t mask, T value, int source, Site site) {
  struct Operand {
    T in, out;
    int source;
  } operand = {value, value, source};
  Collective(
      "shuffle", mask, &operand,
      [](void* const* operands, uint32_t mask, Site site) {
        for (int lane = 0; lane < kWarp; ++lane) {
          if (!(mask >> lane & 1)) continue;
          auto* mine = static_cast<Operand*>(operands[lane]);
          if (!(mask >> mine->source & 1)) {
            Fail(site, "lane " + std::to_string(lane) + " reads lane " + std::to_string(mine->source) +
                           ", which is not in the mask");
          }
          mine->out = static_cast<Operand*>(operands[mine->source])->in;
        }
      },
      site);
  return operand.out;
}

// Asynchronous copies of 16 bytes. The destination is NaN until the group that the copy was committed in is waited for.
void CopyAsync16(void* to, const void* from, Site site);
void CommitCopies();
void WaitCopies(int pending_groups);

void CheckAligned(const void* address, size_t alignment, Site site);

}  // namespace stria::simt
