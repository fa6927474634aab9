// Answers one chat or text completion: submits its sequences, turns their tokens into text, and streams it or sends it whole.
#pragma once

#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "model/tokenizer/tokenizer.h"
#include "scheduler/kv_composer.h"
#include "services/common/http_server.h"
#include "services/scheduler/api_keys.h"
#include "services/scheduler/api_reply.h"
#include "services/scheduler/api_request.h"
#include "services/scheduler/dispatcher.h"
#include "services/scheduler/scheduler_metrics.h"

namespace stria {

// What all requests share.
struct ApiContext {
  Dispatcher& dispatcher;
  const Tokenizer& tokenizer;
  SchedulerMetrics& metrics;
  const ApiKeys& keys;
  const KvComposer* composer = nullptr;  // of the model's pack; null: it has none
};

struct GenerationJob {
  ReplyFormat format;
  GenerationRequest request;
  std::vector<std::vector<int32_t>> prompts;  // each answered request.n times, in this order
  std::vector<std::string> echoes;            // what each prompt's answers begin with; empty: nothing
  std::string tenant;
};

boost::asio::awaitable<void> Generate(ApiContext context, GenerationJob job, HttpExchange& exchange);

// The error that a request's owner sees. `retry_after`: for those that may come again later.
ApiError ErrorOf(const absl::Status& status, uint32_t retry_after);

// Counts it and answers.
boost::asio::awaitable<void> Refuse(SchedulerMetrics& metrics, HttpExchange& exchange, const ApiError& error);

// Priority, tenant and times of a sequence.
void SetUrgency(const Urgency& urgency, const std::string& tenant, SequenceRequest* request);

// The plan of a choice for a prompt of so many tokens on the workers that are there now; `kaizen` composed.
absl::StatusOr<CachePlan> PlanFor(const KvChoice& kv, const Scheduler& brain, size_t prompt_tokens);

// What is said to a client whose `kv` the model cannot serve.
ApiError PlanError(const absl::Status& status);

}  // namespace stria
