#include "services/scheduler/collector.h"

#include <chrono>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace stria {
namespace {

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Collector::Collector(Dispatcher& dispatcher, SchedulerMetrics& metrics, boost::asio::any_io_executor executor,
                     std::function<void(size_t, SequenceEvent)> take)
    : dispatcher_(dispatcher), metrics_(metrics), wake_(executor, MonotonicTime::max()), take_(std::move(take)) {}

absl::Status Collector::Submit(std::vector<SequenceRequest> requests) {
  submitted_ = dispatcher_.Now();
  last_token_.resize(requests.size());
  return dispatcher_.Submit(std::move(requests), *this, [this](const std::vector<uint64_t>& ids) {
    ids_ = ids;
    for (size_t i = 0; i < ids.size(); ++i) indices_[ids[i]] = i;
  });
}

boost::asio::awaitable<void> Collector::Wait() {
  // A timer that never fires is Asio's way to wait for a call: cancelling it is the call.
  while (!news_) {
    co_await wake_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }
  news_ = false;
}

void Collector::Wake() {
  if (std::exchange(news_, true)) return;
  wake_.cancel();
}

void Collector::OnSequence(SequenceEvent event, MonotonicTime now) {
  const auto it = indices_.find(event.id);
  if (it == indices_.end()) return;
  const size_t index = it->second;
  if (event.started) metrics_.queue_seconds.Observe(Seconds(now - submitted_));
  if (const size_t count = event.tokens.size(); count > 0) {
    MonotonicTime& last = last_token_[index];
    if (last == MonotonicTime{}) {
      metrics_.first_token_seconds.Observe(Seconds(now - submitted_));
    } else {
      metrics_.inter_token_seconds.Observe(Seconds(now - last) / static_cast<double>(count));
    }
    last = now;
    metrics_.generated_tokens.Increment(static_cast<double>(count));
  }
  if (event.finished) indices_.erase(it);
  take_(index, std::move(event));
  Wake();
}

}  // namespace stria
