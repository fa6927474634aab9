// The sequences of one request, for the coroutine that answers it: takes their events, wakes the coroutine once for all that came
// in one message, and cancels what is left when it goes.
#pragma once

#include <cstddef>
#include <functional>
#include <unordered_map>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "services/scheduler/dispatcher.h"
#include "services/scheduler/scheduler_metrics.h"

namespace stria {

class Collector final : public SequenceOwner {
 public:
  // `take` is called with each event and the position of its sequence in what was submitted.
  Collector(Dispatcher& dispatcher, SchedulerMetrics& metrics, boost::asio::any_io_executor executor,
            std::function<void(size_t, SequenceEvent)> take);
  ~Collector() override { dispatcher_.Release(ids_); }
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  absl::Status Submit(std::vector<SequenceRequest> requests);

  // Until something happened since the last Wait.
  boost::asio::awaitable<void> Wait();
  void Wake();

  // Its end still comes, as an event.
  void Cancel(size_t index) { dispatcher_.Cancel(ids_[index]); }
  size_t open() const { return indices_.size(); }  // sequences whose end has not come

  void OnSequence(SequenceEvent event, MonotonicTime now) override;

 private:
  Dispatcher& dispatcher_;
  SchedulerMetrics& metrics_;
  boost::asio::steady_timer wake_;
  std::function<void(size_t, SequenceEvent)> take_;
  std::vector<uint64_t> ids_;
  std::unordered_map<uint64_t, size_t> indices_;   // of open sequences
  std::vector<MonotonicTime> last_token_;          // of each; the beginning of time before the first
  MonotonicTime submitted_;
  bool news_ = false;
};

}  // namespace stria
