// Fans what happens out to whoever watches. A watcher that does not read loses events, is told how many, and delays nobody.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include "base/clock.h"

namespace stria {

struct Event {
  std::string name;  // "revision", "tiers", "worker", "firing", "target"
  nlohmann::json data;  // with `unix_seconds`
  uint64_t revision = 0;  // the newest one at that time
};

class EventHub {
 public:
  class Watcher {
   public:
    Watcher(boost::asio::io_context& io, bool firings) : firings_(firings), wake_(io) {}
    // The next event; nullopt after `patience` without one. One caller at a time.
    boost::asio::awaitable<std::optional<Event>> Next(Duration patience);
    // Events dropped since the last call.
    uint64_t TakeLost();

   private:
    friend class EventHub;
    const bool firings_;
    std::deque<Event> queue_;
    uint64_t lost_ = 0;
    boost::asio::steady_timer wake_;
  };

  explicit EventHub(boost::asio::io_context& io) : io_(io) {}
  // Watches until the pointer is dropped. Only those who ask for firings get them: there may be a thousand a second.
  std::shared_ptr<Watcher> Watch(bool firings);
  bool watched() const;
  bool firings_watched() const;
  void Send(const Event& event);

 private:
  static constexpr size_t kMaxQueued = 1024;
  boost::asio::io_context& io_;
  std::vector<std::weak_ptr<Watcher>> watchers_;
};

}  // namespace stria
