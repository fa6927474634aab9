// stria_scheduler_* (docs/metrics.md lists them).
#pragma once

#include <string_view>

#include "scheduler/scheduler.h"
#include "services/common/metrics.h"

namespace stria {

class SchedulerMetrics {
 public:
  explicit SchedulerMetrics(Metrics& metrics);

  // outcome: "stop", "length", "cancelled", "error", "refused" (4xx), "overloaded" (429), "unavailable" (503).
  void CountRequest(std::string_view outcome);
  void Update(const SchedulerStats& stats);

  prometheus::Counter &prompt_tokens, &generated_tokens;
  prometheus::Histogram &first_token_seconds, &inter_token_seconds, &queue_seconds, &request_seconds;

 private:
  Metrics& metrics_;
  prometheus::Gauge &waiting_, &running_, &workers_ready_, &held_back_, &reserved_bytes_, &pool_bytes_, &used_bytes_, &usage_ratio_;
  prometheus::Counter &preemptions_, &resends_, &duplicates_, &gaps_, &workers_lost_, &failovers_, &moves_, &breaker_trips_;
};

}  // namespace stria
