#include "kernels/simt/simt.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "kernels/simt/fiber.h"
#include "kernels/simt/guarded_buffer.h"

namespace stria::simt {
namespace {

std::string Describe(Site site) {
  const char* slash = std::strrchr(site.file_name(), '/');
  return std::string(slash ? slash + 1 : site.file_name()) + ":" + std::to_string(site.line());
}

struct Copy {
  void* to;
  char bytes[16];
};

struct Lane {
  enum State { kReady, kWaiting, kReturned } state = kReady;
  // While waiting.
  const char* name = nullptr;
  uint32_t mask = 0;  // 0: the whole block
  Site site = {};
  void* operand = nullptr;
  Finish finish = nullptr;

  std::vector<Copy> open_copies;
  std::vector<std::vector<Copy>> copy_groups;

  bool SameCollective(const Lane& other) const {
    return name == other.name && mask == other.mask && finish == other.finish && site.line() == other.site.line() &&
           (site.file_name() == other.site.file_name() || std::strcmp(site.file_name(), other.site.file_name()) == 0);
  }
};

class Machine {
 public:
  Machine(const Launch& launch, size_t shared_bytes, const std::function<void(void*)>& body)
      : launch_(launch), shared_(shared_bytes), body_(body), lanes_(launch.threads) {
    STRIA_CHECK(launch.threads > 0 && launch.threads % kWarp == 0);
    for (int i = 0; i < kLaneOrders; ++i) lane_orders_[i] = OrderOf(launch.threads, i + 1);
    while (static_cast<int>(fibers_.size()) < launch.threads) fibers_.push_back(std::make_unique<Fiber>());
  }

  std::string Run() {
    const Index3& grid = launch_.grid;
    const int blocks = grid.x * grid.y * grid.z;
    const std::vector<int> order = OrderOf(blocks, 0);
    current = this;
    for (int i = 0; i < blocks && error_.empty(); ++i) {
      block_ = {order[i] % grid.x, order[i] / grid.x % grid.y, order[i] / grid.x / grid.y};
      RunBlock(order[i]);
    }
    current = nullptr;
    return error_;
  }

  void Wait(const char* name, uint32_t mask, void* operand, Finish finish, Site site) {
    Lane& me = lanes_[thread_];
    me.name = name, me.mask = mask, me.operand = operand, me.finish = finish, me.site = site;
    if (mask != 0 && !(mask >> thread_ % kWarp & 1)) Fail(site, std::string(name) + " with a mask that lacks the caller");
    const auto [begin, end] = Partners(mask);
    bool all_here = true;
    for (int i = begin; i < end; ++i) {
      const Lane& other = lanes_[i];
      if (i == thread_) continue;
      if (Names(mask, i) && other.state == Lane::kReturned) {
        Fail(site, std::string(name) + " waits for thread " + std::to_string(i) + ", which has returned");
      }
      if (other.state == Lane::kWaiting && Concern(mask, i, other.mask) && !me.SameCollective(other)) {
        Fail(site, std::string(name) + " meets a " + other.name + " of thread " + std::to_string(i) + " at " +
                       Describe(other.site));
      }
      all_here &= !Names(mask, i) || (other.state == Lane::kWaiting && other.mask == mask);
    }
    if (!all_here) {
      me.state = Lane::kWaiting;
      fibers_[thread_]->Suspend();
      return;
    }
    if (finish != nullptr) {
      void* operands[kWarp];
      for (int i = 0; i < kWarp; ++i) operands[i] = lanes_[begin + i].operand;
      finish(operands, mask, site);
    }
    for (int i = begin; i < end; ++i)
      if (Names(mask, i)) lanes_[i].state = Lane::kReady;
  }

  [[noreturn]] void Fail(Site site, const std::string& what) {
    if (error_.empty()) error_ = Describe(site) + ": thread " + std::to_string(thread_) + ": " + what;
    fibers_[thread_]->Suspend();
    std::abort();
  }

  Lane& lane() { return lanes_[thread_]; }
  int thread() const { return thread_; }
  const Launch& launch() const { return launch_; }
  Index3 block() const { return block_; }

  static Machine* current;

 private:
  std::vector<int> OrderOf(int count, uint64_t stream) const {
    std::vector<int> order(count);
    for (int i = 0; i < count; ++i) order[i] = launch_.order == Order::kReverse ? count - 1 - i : i;
    if (launch_.order == Order::kShuffled) {
      for (int i = count - 1; i > 0; --i) std::swap(order[i], order[static_cast<int>(Uniform(7, stream, i) * (i + 1))]);
    }
    return order;
  }

  void RunBlock(int number) {
    std::memset(shared_.data(), 0xff, shared_.size());
    std::fill(lanes_.begin(), lanes_.end(), Lane());
    for (auto& fiber : fibers_) fiber->Start(&LaneMain, this);
    int returned = 0;
    for (int round = number; error_.empty() && returned < launch_.threads; ++round) {
      bool progress = false;
      for (int i : lane_orders_[round % kLaneOrders]) {
        if (lanes_[i].state != Lane::kReady) continue;
        progress = true;
        thread_ = i;
        fibers_[i]->Resume();
        returned += lanes_[i].state == Lane::kReturned;
        if (!error_.empty()) return;
      }
      if (!progress) error_ = "deadlock";
    }
  }

  static void LaneMain(void* machine) {
    Machine& self = *static_cast<Machine*>(machine);
    self.body_(self.shared_.data());
    self.Return();
  }

  void Return() {
    const int thread = thread_;
    Lane& me = lanes_[thread];
    if (!me.open_copies.empty() || !me.copy_groups.empty()) error_ = "a thread returns with copies in flight";
    me.state = Lane::kReturned;
    for (int i = 0; i < launch_.threads; ++i) {
      const Lane& other = lanes_[i];
      if (other.state == Lane::kWaiting && (other.mask == 0 || (i / kWarp == thread / kWarp && Names(other.mask, thread)))) {
        error_ = Describe(other.site) + ": thread " + std::to_string(i) + ": " + other.name + " waits for thread " +
                 std::to_string(thread) + ", which has returned";
      }
    }
    fibers_[thread]->Suspend();
  }

  // Threads whose collectives can have to do with one of this mask by this thread.
  std::pair<int, int> Partners(uint32_t mask) const {
    if (mask == 0) return {0, launch_.threads};
    const int warp = thread_ / kWarp * kWarp;
    return {warp, warp + kWarp};
  }
  static bool Names(uint32_t mask, int thread) { return mask == 0 || (mask >> thread % kWarp & 1); }

  // Whether this thread's collective and the one that `other` waits in must be the same: both are barriers, or one is a
  // warp's and names the other's thread.
  bool Concern(uint32_t mask, int other, uint32_t other_mask) const {
    if (mask == 0 && other_mask == 0) return true;
    return other / kWarp == thread_ / kWarp &&
           ((mask != 0 && Names(mask, other)) || (other_mask != 0 && Names(other_mask, thread_)));
  }

  static constexpr int kLaneOrders = 16;  // shuffled ones differ; taken in turn

  const Launch launch_;
  std::vector<int> lane_orders_[kLaneOrders];
  GuardedBuffer<char> shared_;
  const std::function<void(void*)>& body_;
  std::vector<Lane> lanes_;
  int thread_ = 0;
  Index3 block_;
  std::string error_;
  static std::vector<std::unique_ptr<Fiber>> fibers_;  // kept between launches
};

Machine* Machine::current = nullptr;
std::vector<std::unique_ptr<Fiber>> Machine::fibers_;

}  // namespace

std::string RunGrid(const Launch& launch, size_t shared_bytes, const std::function<void(void*)>& body) {
  return Machine(launch, shared_bytes, body).Run();
}

int Thread() { return Machine::current->thread(); }
int Threads() { return Machine::current->launch().threads; }
Index3 Block() { return Machine::current->block(); }
void Fail(Site site, const std::string& what) { Machine::current->Fail(site, what); }
void Barrier(Site site) { Machine::current->Wait("barrier", 0, nullptr, nullptr, site); }

void Collective(const char* name, uint32_t mask, void* operand, Finish finish, Site site) {
  if (mask == 0) Fail(site, std::string(name) + " with an empty mask");
  Machine::current->Wait(name, mask, operand, finish, site);
}

void CheckAligned(const void* address, size_t alignment, Site site) {
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0) {
    Fail(site, "address not aligned to " + std::to_string(alignment) + " bytes");
  }
}

void CopyAsync16(void* to, const void* from, Site site) {
  CheckAligned(to, 16, site);
  CheckAligned(from, 16, site);
  Copy copy = {to, {}};
  std::memcpy(copy.bytes, from, 16);
  std::memset(to, 0xff, 16);
  Machine::current->lane().open_copies.push_back(copy);
}

void CommitCopies() {
  Lane& lane = Machine::current->lane();
  lane.copy_groups.push_back(std::move(lane.open_copies));
  lane.open_copies.clear();
}

void WaitCopies(int pending_groups) {
  auto& groups = Machine::current->lane().copy_groups;
  for (; static_cast<int>(groups.size()) > pending_groups; groups.erase(groups.begin()))
    for (const Copy& copy : groups.front()) std::memcpy(copy.to, copy.bytes, 16);
}

}  // namespace stria::simt
