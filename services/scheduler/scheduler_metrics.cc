#include "services/scheduler/scheduler_metrics.h"

namespace stria {
namespace {

constexpr char kRequests[] = "stria_scheduler_requests_total";
constexpr char kRequestsHelp[] = "Requests by how they ended.";

}  // namespace

SchedulerMetrics::SchedulerMetrics(Metrics& metrics)
    : prompt_tokens(metrics.Counter("stria_scheduler_prompt_tokens_total", "Prompt tokens of accepted requests.")),
      generated_tokens(metrics.Counter("stria_scheduler_generated_tokens_total", "Tokens received from workers, each once.")),
      first_token_seconds(metrics.Histogram("stria_scheduler_time_to_first_token_seconds",
                                            "From a request's arrival to the first token of each of its sequences.",
                                            ExponentialBuckets(0.005, 2, 15))),
      inter_token_seconds(metrics.Histogram("stria_scheduler_inter_token_seconds", "Between tokens of one sequence as they arrive.",
                                            ExponentialBuckets(0.0005, 2, 15))),
      queue_seconds(metrics.Histogram("stria_scheduler_queue_seconds", "From a sequence's arrival to its first start on a worker.",
                                      ExponentialBuckets(0.001, 4, 9))),
      request_seconds(metrics.Histogram("stria_scheduler_request_seconds", "From a request's arrival to its end.",
                                        ExponentialBuckets(0.01, 2, 16))),
      metrics_(metrics),
      waiting_(metrics.Gauge("stria_scheduler_queue_size", "Sequences that wait for room on a worker.")),
      running_(metrics.Gauge("stria_scheduler_running", "Sequences that a worker has.")),
      workers_ready_(metrics.Gauge("stria_scheduler_workers_ready", "Workers that take sequences.")),
      held_back_(metrics.Gauge("stria_scheduler_workers_held_back", "Workers whose circuit breaker is open or on trial.")),
      reserved_bytes_(metrics.Gauge("stria_scheduler_reserved_bytes", "Pool bytes set aside for running sequences, in whole slabs.")),
      pool_bytes_(metrics.Gauge("stria_scheduler_pool_bytes", "Pool bytes of all workers.")),
      used_bytes_(metrics.Gauge("stria_scheduler_used_bytes", "Pool bytes in use, as workers last said.")),
      usage_ratio_(metrics.Gauge("stria_scheduler_kv_cache_usage_ratio", "Used bytes / pool bytes, 0 to 1.")),
      preemptions_(metrics.Counter("stria_scheduler_preemptions_total", "Sequences that a worker gave back for want of pages.")),
      resends_(metrics.Counter("stria_scheduler_resends_total", "Commands sent again because no effect showed.")),
      duplicates_(metrics.Counter("stria_scheduler_duplicate_tokens_total", "Tokens that had arrived before.")),
      gaps_(metrics.Counter("stria_scheduler_gaps_total", "Outputs not taken because earlier tokens were missing.")),
      workers_lost_(metrics.Counter("stria_scheduler_workers_lost_total", "Workers that fell silent or were restarted.")),
      failovers_(metrics.Counter("stria_scheduler_failovers_total", "Sequences of lost workers that were started again.")),
      moves_(metrics.Counter("stria_scheduler_moves_total", "Sequences that a leaving worker handed over.")),
      breaker_trips_(metrics.Counter("stria_scheduler_breaker_trips_total", "Times that a worker was held back for failing.")) {
  for (const char* outcome : {"stop", "length", "cancelled", "error", "refused", "overloaded", "unavailable"}) {
    metrics_.Counter(kRequests, kRequestsHelp, {{"outcome", outcome}});
  }
}

void SchedulerMetrics::CountRequest(std::string_view outcome) {
  metrics_.Counter(kRequests, kRequestsHelp, {{"outcome", std::string(outcome)}}).Increment();
}

void SchedulerMetrics::Update(const SchedulerStats& stats) {
  waiting_.Set(static_cast<double>(stats.waiting));
  running_.Set(static_cast<double>(stats.running));
  workers_ready_.Set(static_cast<double>(stats.workers));
  held_back_.Set(static_cast<double>(stats.held_back));
  reserved_bytes_.Set(static_cast<double>(stats.reserved_bytes));
  pool_bytes_.Set(static_cast<double>(stats.pool_bytes));
  used_bytes_.Set(static_cast<double>(stats.used_bytes));
  usage_ratio_.Set(stats.pool_bytes > 0 ? static_cast<double>(stats.used_bytes) / static_cast<double>(stats.pool_bytes) : 0);
  AdvanceTo(preemptions_, static_cast<double>(stats.preemptions));
  AdvanceTo(resends_, static_cast<double>(stats.resends));
  AdvanceTo(duplicates_, static_cast<double>(stats.duplicates));
  AdvanceTo(gaps_, static_cast<double>(stats.gaps));
  AdvanceTo(workers_lost_, static_cast<double>(stats.workers_lost));
  AdvanceTo(failovers_, static_cast<double>(stats.failovers));
  AdvanceTo(moves_, static_cast<double>(stats.moves));
  AdvanceTo(breaker_trips_, static_cast<double>(stats.breaker_trips));
}

}  // namespace stria
