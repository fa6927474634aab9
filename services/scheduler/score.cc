#include "services/scheduler/score.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <boost/asio/this_coro.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "services/scheduler/collector.h"

namespace stria {
namespace {

std::string Number(double logprob) { return absl::StrFormat("%.7g", std::isfinite(logprob) ? logprob : -9999.0); }

absl::StatusOr<std::vector<SequenceRequest>> Requests(const ScoreJob& job, const Scheduler& brain) {
  std::vector<SequenceRequest> requests;
  for (const std::vector<int32_t>& prompt : job.prompts) {
    STRIA_ASSIGN_OR_RETURN(const CachePlan plan, PlanFor(job.kv, brain, /*prompt_tokens=*/1));
    SequenceRequest& request = requests.emplace_back();
    request.prompt = {prompt.front()};
    request.forced.assign(prompt.begin() + 1, prompt.end());
    request.max_new_tokens = static_cast<uint32_t>(request.forced.size());
    request.sampling.temperature = 0;
    request.sampling.top_logprobs = job.top_logprobs;
    request.plan = plan;
    request.share_prefix = false;  // what is measured is this cache, not one that was there before
    SetUrgency(job.urgency, job.tenant, &request);
  }
  return requests;
}

// One prompt's entry in `choices`.
void AppendChoice(size_t index, const std::vector<int32_t>& prompt, const std::vector<TokenOut>& scored, bool with_top, std::string* out) {
  std::string tokens = absl::StrCat(prompt.front()), logprobs = "null", tops = "null";
  double sum = 0;
  for (const TokenOut& token : scored) {
    sum += token.logprob;
    absl::StrAppend(&tokens, ",", token.token);
    absl::StrAppend(&logprobs, ",", Number(token.logprob));
    tops += ",[";
    for (size_t k = 0; k < token.top.size(); ++k) {
      absl::StrAppend(&tops, k > 0 ? "," : "", "{\"token\":", token.top[k].token, ",\"logprob\":", Number(token.top[k].logprob), "}");
    }
    tops += ']';
  }
  absl::StrAppend(out, "{\"index\":", index, ",\"tokens\":[", tokens, "],\"token_logprobs\":[", logprobs, "]");
  if (with_top) absl::StrAppend(out, ",\"top_logprobs\":[", tops, "]");
  absl::StrAppend(out, ",\"logprob\":", Number(sum), ",\"perplexity\":",
                  absl::StrFormat("%.7g", std::exp(-sum / static_cast<double>(std::max<size_t>(scored.size(), 1)))), "}");
}

}  // namespace

boost::asio::awaitable<void> AnswerScore(ApiContext context, ScoreJob job, HttpExchange& exchange) {
  const Scheduler& brain = context.dispatcher.brain();
  std::vector<std::vector<TokenOut>> scored(job.prompts.size());
  Usage usage;
  for (const auto& prompt : job.prompts) {
    usage.prompt_tokens += prompt.size();
    usage.plan.Add(job.kv, static_cast<uint32_t>(prompt.size()));
  }
  absl::Status failure;
  const boost::asio::any_io_executor executor = co_await boost::asio::this_coro::executor;
  Collector collector(context.dispatcher, context.metrics, executor,
                      [&](size_t index, SequenceEvent event) {
                        for (TokenOut& token : event.tokens) scored[index].push_back(std::move(token));
                        if (!event.finished) return;
                        usage.kv.Add(event.kv);
                        if (!event.status.ok() && failure.ok()) failure = event.status;
                      });
  bool gone = false;
  absl::StatusOr<std::vector<SequenceRequest>> requests = Requests(job, brain);
  if (!requests.ok()) {
    const ApiError error = PlanError(requests.status());
    co_await Refuse(context.metrics, exchange, error);
    co_return;
  }
  failure = collector.Submit(*std::move(requests));
  exchange.OnClientGone([&] {
    gone = true;
    collector.Wake();
  });
  while (failure.ok() && !gone && collector.open() > 0) co_await collector.Wait();
  if (gone) {
    context.metrics.CountRequest("cancelled");
    co_return;
  }
  if (!failure.ok()) {
    const ApiError error = ErrorOf(failure, brain.RetryAfterSeconds());
    co_await Refuse(context.metrics, exchange, error);
    co_return;
  }
  HttpResponse response;
  response.body = absl::StrCat(job.head, ",\"choices\":[");
  for (size_t i = 0; i < scored.size(); ++i) {
    if (i > 0) response.body += ',';
    AppendChoice(i, job.prompts[i], scored[i], job.top_logprobs > 0, &response.body);
  }
  response.body += "],\"usage\":";
  AppendUsageJson(usage, &response.body);
  response.body += '}';
  context.metrics.CountRequest("stop");
  co_await exchange.Respond(std::move(response));
}

}  // namespace stria
