#include "services/controller/event_hub.h"

#include <algorithm>
#include <utility>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace stria {

boost::asio::awaitable<std::optional<Event>> EventHub::Watcher::Next(Duration patience) {
  if (queue_.empty()) {
    wake_.expires_after(patience);
    boost::system::error_code woken;
    co_await wake_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, woken));
  }
  if (queue_.empty()) co_return std::nullopt;
  Event event = std::move(queue_.front());
  queue_.pop_front();
  co_return event;
}

uint64_t EventHub::Watcher::TakeLost() { return std::exchange(lost_, 0); }

std::shared_ptr<EventHub::Watcher> EventHub::Watch(bool firings) {
  std::erase_if(watchers_, [](const auto& watcher) { return watcher.expired(); });
  auto watcher = std::make_shared<Watcher>(io_, firings);
  watchers_.push_back(watcher);
  return watcher;
}

bool EventHub::watched() const {
  return std::any_of(watchers_.begin(), watchers_.end(), [](const auto& watcher) { return !watcher.expired(); });
}

bool EventHub::firings_watched() const {
  return std::any_of(watchers_.begin(), watchers_.end(), [](const auto& weak) {
    const auto watcher = weak.lock();
    return watcher != nullptr && watcher->firings_;
  });
}

void EventHub::Send(const Event& event) {
  for (const auto& weak : watchers_) {
    const std::shared_ptr<Watcher> watcher = weak.lock();
    if (watcher == nullptr || (event.name == "firing" && !watcher->firings_)) continue;
    if (watcher->queue_.size() == kMaxQueued) {
      watcher->queue_.pop_front();
      ++watcher->lost_;
    }
    watcher->queue_.push_back(event);
    watcher->wake_.cancel();
  }
}

}  // namespace stria
