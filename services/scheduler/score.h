// /v1/score: the log-probability of each token of a text, teacher-forced through decode steps, so that it sees the cache's widths.
#pragma once

#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "services/scheduler/generation.h"

namespace stria {

struct ScoreJob {
  std::string head;  // of the reply's JSON, up to the model's name
  KvChoice kv;
  Urgency urgency;
  std::string tenant;
  int32_t top_logprobs = 0;
  std::vector<std::vector<int32_t>> prompts;  // each of at least two tokens
};

boost::asio::awaitable<void> AnswerScore(ApiContext context, ScoreJob job, HttpExchange& exchange);

}  // namespace stria
