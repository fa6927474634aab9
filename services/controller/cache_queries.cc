#include "services/controller/cache_queries.h"

#include <utility>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "services/common/http_error.h"
#include "services/controller/query.h"
#include "services/controller/state_json.h"

namespace stria {
namespace {

using boost::asio::awaitable;
using nlohmann::json;

json BitsOf(const std::vector<Width>& widths) {
  json bits = json::array();
  for (const Width width : widths) bits.push_back(Bits(width));
  return bits;
}

// Ids as text: JSON numbers lose their low bits in browsers.
json ToJson(const SequenceHeld& held) {
  json page_bytes = json::object();
  for (size_t i = 0; i < held.page_bytes.size(); ++i) page_bytes[Name(kAllWidths[i])] = held.page_bytes[i];
  return {{"sequence", absl::StrCat(held.name.id)},
          {"attempt", held.name.attempt},
          {"tokens", held.tokens},
          {"positions", held.positions},
          {"tail", held.tail},
          {"ring_keys", held.ring_keys},
          {"prefilling", held.prefilling},
          {"page_bytes", std::move(page_bytes)},
          {"ring_bytes", held.ring_bytes},
          {"bytes", held.bytes},
          {"fp16_bytes", held.fp16_bytes}};
}

json ToJson(const CacheReport& report, double unix_seconds) {
  json sequences = json::array(), pages = nullptr;
  for (const SequenceHeld& held : report.sequences) sequences.push_back(ToJson(held));
  if (report.pages_of != 0) {
    pages = {{"sequence", absl::StrCat(report.pages_of)}, {"layers", json::array()}};
    for (const LayerPages& layer : report.layers) pages["layers"].push_back({{"keys", BitsOf(layer.keys)}, {"values", BitsOf(layer.values)}});
  }
  return {{"unix_seconds", unix_seconds},
          {"worker", report.worker},
          {"incarnation", report.incarnation},
          {"epoch", report.epoch},
          {"pool_bytes", report.pool_bytes},
          {"used_bytes", report.used_bytes},
          {"sequences", std::move(sequences)},
          {"pages", std::move(pages)}};
}

}  // namespace

CacheQueries::CacheQueries(boost::asio::io_context& io, ControlLoop& loop) : io_(io), loop_(loop) {
  loop.set_on_cache_report([this](CacheReport report) {
    const auto it = waiting_.find(report.number);
    if (it == waiting_.end() || it->second->worker != report.worker) return;
    it->second->report = std::move(report);
    it->second->timer.cancel();
  });
}

awaitable<absl::StatusOr<CacheReport>> CacheQueries::Ask(std::string worker, uint64_t sequence) {
  if (waiting_.size() >= kMaxWaiting) co_return absl::ResourceExhaustedError(absl::StrCat(kMaxWaiting, " others wait for workers' answers; try again"));
  const uint64_t number = ++last_number_;
  const absl::Status asked = loop_.AskCache(worker, {number, sequence});
  if (!asked.ok()) co_return asked;
  const auto waiting = std::make_shared<Waiting>(io_);
  waiting->worker = worker;
  waiting->timer.expires_after(kPatience);
  waiting_.emplace(number, waiting);
  boost::system::error_code woken;
  co_await waiting->timer.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, woken));
  waiting_.erase(number);
  if (!waiting->report) co_return absl::DeadlineExceededError(absl::StrCat("worker ", worker, " did not answer within ", kPatience.count(), " s"));
  co_return *std::move(waiting->report);
}

awaitable<void> CacheQueries::Answer(HttpExchange& exchange) {
  const auto& query = exchange.request().query;
  const auto worker = query.find("worker");
  const absl::StatusOr<uint64_t> sequence = QueryNumber(exchange.request(), "sequence", 0);
  HttpResponse response;
  if (!sequence.ok()) {
    response = ErrorResponse(sequence.status());
  } else if (worker == query.end()) {
    response = ErrorResponse(absl::InvalidArgumentError("worker: say whose cache; GET /v1/status has their names"));
  } else {
    const absl::StatusOr<CacheReport> report = co_await Ask(worker->second, *sequence);
    if (report.ok()) {
      response.body = Dump(ToJson(*report, loop_.UnixSeconds())) + "\n";
    } else {
      response = ErrorResponse(report.status());
    }
  }
  co_await exchange.Respond(std::move(response));
}

}  // namespace stria
