// GET /v1/cache: what a worker's cache holds. The worker is asked over the tiers socket, which it opened itself: the controller dials
// nobody, and whoever reads needs no way to the worker.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/status/statusor.h"
#include "proto/cache_report.h"
#include "services/common/http_server.h"
#include "services/controller/control_loop.h"

namespace stria {

class CacheQueries {
 public:
  static constexpr auto kPatience = std::chrono::seconds(3);
  static constexpr size_t kMaxWaiting = 64;

  // Both outlive this. Takes the loop's cache reports.
  CacheQueries(boost::asio::io_context& io, ControlLoop& loop);

  // As ControlLoop::AskCache(); DeadlineExceeded: the worker said nothing for kPatience; ResourceExhausted: kMaxWaiting others wait.
  boost::asio::awaitable<absl::StatusOr<CacheReport>> Ask(std::string worker, uint64_t sequence);
  // Query: `worker`, and `sequence` whose pages are wanted one by one.
  boost::asio::awaitable<void> Answer(HttpExchange& exchange);

 private:
  struct Waiting {
    explicit Waiting(boost::asio::io_context& io) : timer(io) {}
    boost::asio::steady_timer timer;
    std::string worker;
    std::optional<CacheReport> report;
  };

  boost::asio::io_context& io_;
  ControlLoop& loop_;
  std::map<uint64_t, std::shared_ptr<Waiting>> waiting_;  // by the query's number
  uint64_t last_number_ = 0;
};

}  // namespace stria
