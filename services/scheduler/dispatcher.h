// The brain on its thread: worker sockets and timers feed it, its commands go out, its events go to the requests that own the
// sequences. Everything runs on the io_context's one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "scheduler/scheduler.h"
#include "services/common/bus_listener.h"
#include "services/common/log.h"

namespace stria {

// Who hears a sequence's events. Called from inside Dispatcher's calls: must not call back into it.
class SequenceOwner {
 public:
  virtual ~SequenceOwner() = default;
  virtual void OnSequence(SequenceEvent event, MonotonicTime now) = 0;
};

class Dispatcher {
 public:
  // `socket`: the bound ROUTER.
  Dispatcher(boost::asio::io_context& io, std::unique_ptr<BusSocket> socket, SchedulerOptions options, const Clock& clock,
             const Logger& log);

  // `owner` hears of these sequences until it is told of their ends or calls Release. `named` is called with their ids before
  // anything is heard.
  absl::Status Submit(std::vector<SequenceRequest> requests, SequenceOwner& owner,
                      const std::function<void(const std::vector<uint64_t>&)>& named);
  void Cancel(uint64_t id);
  // The owner is going away: its sequences are cancelled, nobody hears of them.
  void Release(const std::vector<uint64_t>& ids);

  const Scheduler& brain() const { return brain_; }
  MonotonicTime Now() const { return clock_.Now(); }
  const Clock& clock() const { return clock_; }
  uint64_t bad_frames() const { return bad_frames_; }

 private:
  void OnFrame(PeerFrame frame);
  void Deliver();
  void Tick();
  // The connection over which a worker's latest process speaks.
  void Learn(const std::string& worker, uint64_t incarnation, const std::string& peer);

  const Clock& clock_;
  const Logger& log_;
  Scheduler brain_;
  BusListener link_;
  boost::asio::steady_timer timer_;
  std::unordered_map<std::string, std::pair<uint64_t, std::string>> peers_;  // by worker: incarnation, routing id
  std::unordered_map<uint64_t, SequenceOwner*> owners_;
  uint64_t bad_frames_ = 0;
};

}  // namespace stria
