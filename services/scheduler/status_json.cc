#include "services/scheduler/status_json.h"

#include <chrono>

#include <nlohmann/json.hpp>

namespace stria {
namespace {

using Json = nlohmann::ordered_json;

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

Json WorkerJson(const Worker& worker, const CircuitBreaker* breaker, MonotonicTime now) {
  Json json;
  json["worker"] = worker.hello.worker;
  json["incarnation"] = worker.hello.incarnation;
  json["http"] = worker.hello.http;
  json["state"] = worker.status.draining ? "draining" : worker.unreachable_since ? "unreachable" : "serving";
  json["seconds_since_heard"] = Seconds(now - worker.last_heard);
  json["sequences"] = worker.sequences;
  json["max_sequences"] = worker.hello.max_sequences;
  json["pool_bytes"] = worker.hello.pool_bytes;
  json["used_bytes"] = worker.status.used_bytes;
  json["idle_bytes"] = worker.status.idle_bytes;
  json["shared_bytes"] = worker.status.shared_bytes;
  json["reserved_bytes"] = worker.reserved.Footprint();
  json["breaker"] = {{"state", Name(worker.breaker)},
                     {"trips", breaker != nullptr ? breaker->trips() : 0},
                     {"seconds_left", breaker != nullptr ? Seconds(breaker->remaining(now)) : 0}};
  return json;
}

}  // namespace

std::string StatusJson(const Scheduler& scheduler, MonotonicTime now) {
  const SchedulerStats stats = scheduler.stats();
  Json json;
  json["ready"] = scheduler.ready();
  json["waiting"] = stats.waiting;
  json["running"] = stats.running;
  json["workers"] = Json::array();
  for (const auto& [name, worker] : scheduler.fleet().workers()) {
    json["workers"].push_back(WorkerJson(worker, scheduler.fleet().FindBreaker(name), now));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace stria
