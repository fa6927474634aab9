#include "services/scheduler/generation.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <utility>

#include <boost/asio/this_coro.hpp>

#include "base/check.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "services/common/http_error.h"
#include "services/scheduler/answer_text.h"
#include "services/scheduler/collector.h"

namespace stria {
namespace {

struct Progress {
  AnswerText text;
  Answer answer;           // grows when the reply is sent whole
  std::optional<uint64_t> cached_tokens;  // once its sequence, which ran, has ended
  bool ended = false;      // its sequence has
  bool concluded = false;  // its finish reason is known
  bool cancelled = false;

  Progress(AnswerText text) : text(std::move(text)) {}
};

// Who shares cached prompts with whom: requests of one tenant with one `cache_salt`.
std::string TenantSalt(std::string_view tenant, std::string_view cache_salt) {
  if (tenant.empty() && cache_salt.empty()) return "";
  Sha256 hash;
  for (const std::string_view field : {tenant, cache_salt}) hash.Update(uint64_t{field.size()}).Update(field);
  return Hex(hash.Finish());
}

class Generation {
 public:
  Generation(const ApiContext& context, const GenerationJob& job) : context_(context), job_(job) {
    // Checked when the request was read: no stop is empty.
    const absl::StatusOr<StopMatcher> matcher = StopMatcher::Create(job.request.stop);
    STRIA_CHECK(matcher.ok());
    for (size_t i = 0; i < job.prompts.size() * job.request.n; ++i) {
      answers_.emplace_back(AnswerText(context.tokenizer, *matcher, !job.request.ignore_eos, job.request.sampling.top_logprobs >= 0));
    }
    for (const auto& prompt : job.prompts) usage_.prompt_tokens += prompt.size();
  }

  // Once: it also notes the plans that were chosen.
  absl::StatusOr<std::vector<SequenceRequest>> Requests() {
    std::vector<SequenceRequest> requests;
    SamplingParams sampling = job_.request.sampling;
    std::random_device entropy;
    sampling.seed = job_.request.seed.value_or(uint64_t{entropy()} << 32 | entropy());
    const std::string cache_salt = TenantSalt(job_.tenant, job_.request.cache_salt);
    for (const auto& prompt : job_.prompts) {
      const Scheduler& brain = context_.dispatcher.brain();
      KvChoice kv = job_.request.kv;
      if (context_.composer != nullptr) {
        STRIA_ASSIGN_OR_RETURN(kv, context_.composer->Compose(std::move(kv), prompt, brain.pressure()));
      }
      STRIA_ASSIGN_OR_RETURN(const CachePlan plan, PlanFor(kv, brain, prompt.size()));
      usage_.plan.Add(kv, static_cast<uint32_t>(prompt.size()));
      for (uint32_t choice = 0; choice < job_.request.n; ++choice) {
        sampling.choice = choice;
        SequenceRequest& request = requests.emplace_back();
        request.prompt = prompt;
        request.max_new_tokens = job_.request.max_tokens;
        if (!job_.request.ignore_eos) request.stop_tokens = context_.tokenizer.end_tokens();
        request.sampling = sampling;
        request.plan = plan;
        SetUrgency(job_.request.urgency, job_.tenant, &request);
        request.share_prefix = job_.request.cache_prompt;
        request.cache_salt = cache_salt;
      }
    }
    return requests;
  }

  void Take(size_t index, SequenceEvent event) {
    started_ |= event.started;
    Progress& progress = answers_[index];
    for (const TokenOut& token : event.tokens) progress.text.Add(token);
    if (!event.finished) return;
    progress.ended = true;
    progress.text.Finish();
    usage_.kv.Add(event.kv);
    if (event.kv.tokens > 0) progress.cached_tokens = event.kv.cached_tokens;
    if (!event.status.ok() && !progress.text.stopped() && failure_.ok()) failure_ = event.status;
    progress.answer.finish_reason = event.finish == FinishReason::kLength && !progress.text.stopped() ? "length" : "stop";
  }

  // The events that open a stream.
  void Open(std::string* out) const {
    for (size_t i = 0; i < answers_.size(); ++i) {
      if (is_chat_) job_.format.AppendRole(i, out);
      if (!job_.echoes.empty()) job_.format.AppendDelta(i, job_.echoes[i / job_.request.n], {}, 0, out);
    }
  }

  // Events for all that is new.
  void Continue(Collector& collector, std::string* out) {
    for (size_t i = 0; i < answers_.size(); ++i) {
      Progress& progress = answers_[i];
      if (progress.concluded) continue;
      const std::string text = progress.text.TakeText();
      size_t offset = 0;
      const std::vector<ScoredToken> scored = progress.text.TakeScored(&offset);
      if (!text.empty() || !scored.empty()) job_.format.AppendDelta(i, text, scored, offset, out);
      if (progress.text.stopped() || progress.ended) {
        progress.concluded = true;
        job_.format.AppendFinish(i, progress.text.stopped() ? "stop" : progress.answer.finish_reason, out);
      }
    }
    CancelStopped(collector);
  }

  // A stop string ends an answer before its sequence ends.
  void CancelStopped(Collector& collector) {
    for (size_t i = 0; i < answers_.size(); ++i) {
      Progress& progress = answers_[i];
      if (!progress.text.stopped() || progress.ended || std::exchange(progress.cancelled, true)) continue;
      collector.Cancel(i);
    }
  }

  std::string Whole() {
    std::vector<Answer> answers;
    for (size_t i = 0; i < answers_.size(); ++i) {
      Answer& answer = answers_[i].answer;
      if (!job_.echoes.empty()) answer.text = job_.echoes[i / job_.request.n];
      answer.text += answers_[i].text.TakeText();
      size_t offset = 0;
      answer.logprobs = answers_[i].text.TakeScored(&offset);
      answers.push_back(std::move(answer));
    }
    return job_.format.Whole(answers, usage());
  }

  Usage usage() const {
    Usage usage = usage_;
    for (const Progress& progress : answers_) usage.completion_tokens += progress.text.tokens();
    for (size_t prompt = 0; prompt < job_.prompts.size(); ++prompt) usage.cached_tokens += CachedTokens(prompt);
    return usage;
  }
  bool concluded() const {
    for (const Progress& progress : answers_) {
      if (!progress.concluded) return false;
    }
    return true;
  }
  std::string outcome() const {
    for (const Progress& progress : answers_) {
      if (!progress.text.stopped() && progress.answer.finish_reason == "length") return "length";
    }
    return "stop";
  }
  bool started() const { return started_; }
  const absl::Status& failure() const { return failure_; }

 private:
  // What no answer to the prompt had to compute. A sequence that began a second time may also have found its answer's pages.
  uint64_t CachedTokens(size_t prompt) const {
    std::optional<uint64_t> least;
    for (size_t i = prompt * job_.request.n; i < (prompt + 1) * job_.request.n; ++i) {
      const std::optional<uint64_t> cached = answers_[i].cached_tokens;
      if (cached) least = std::min<uint64_t>(least.value_or(job_.prompts[prompt].size()), *cached);
    }
    return least.value_or(0);
  }

  const ApiContext context_;
  const GenerationJob& job_;
  const bool is_chat_ = job_.format.kind() == ReplyKind::kChat;
  std::vector<Progress> answers_;
  Usage usage_;  // without completion tokens
  bool started_ = false;
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<CachePlan> PlanFor(const KvChoice& kv, const Scheduler& brain, size_t prompt_tokens) {
  const auto& workers = brain.fleet().workers();
  if (workers.empty()) return absl::UnavailableError("no worker is ready");
  return kv.Plan(workers.begin()->second.hello.layers.size(), static_cast<uint32_t>(prompt_tokens));
}

ApiError PlanError(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return ErrorOf(status, 1);
  return {.message = std::string(status.message().data(), status.message().size()), .param = "kv", .code = "unsupported_value"};
}

void SetUrgency(const Urgency& urgency, const std::string& tenant, SequenceRequest* request) {
  const auto duration = [](double seconds) { return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)); };
  request->tenant = tenant;
  request->priority = urgency.priority;
  request->queue_timeout = duration(urgency.queue_timeout);
  request->deadline = duration(urgency.deadline);
}

ApiError ErrorOf(const absl::Status& status, uint32_t retry_after) {
  ApiError error{.status = HttpStatus(status), .message = std::string(status.message().data(), status.message().size())};
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      error.code = "queue_full";
      error.retry_after = static_cast<int>(retry_after);
      break;
    case absl::StatusCode::kAborted:
      error.status = 503;
      error.code = "queue_timeout";
      error.retry_after = static_cast<int>(retry_after);
      break;
    case absl::StatusCode::kDeadlineExceeded: error.code = "deadline_exceeded"; break;
    case absl::StatusCode::kUnavailable:
      error.code = "worker_unavailable";
      error.retry_after = 1;
      break;
    case absl::StatusCode::kInvalidArgument: error.code = "context_length_exceeded"; break;
    default: break;
  }
  return error;
}

boost::asio::awaitable<void> Refuse(SchedulerMetrics& metrics, HttpExchange& exchange, const ApiError& error) {
  metrics.CountRequest(error.status == 429   ? "overloaded"
                       : error.status == 503 ? "unavailable"
                       : error.status >= 500 ? "error"
                                             : "refused");
  HttpResponse response = ToResponse(error);
  co_await exchange.Respond(std::move(response));
}

boost::asio::awaitable<void> Generate(ApiContext context, GenerationJob job, HttpExchange& exchange) {
  SchedulerMetrics& metrics = context.metrics;
  const Scheduler& brain = context.dispatcher.brain();
  const MonotonicTime arrived = context.dispatcher.Now();
  Generation generation(context, job);
  const boost::asio::any_io_executor executor = co_await boost::asio::this_coro::executor;
  Collector collector(context.dispatcher, metrics, executor,
                      [&](size_t index, SequenceEvent event) { generation.Take(index, std::move(event)); });
  absl::StatusOr<std::vector<SequenceRequest>> requests = generation.Requests();
  if (!requests.ok()) {
    const ApiError error = PlanError(requests.status());
    co_await Refuse(metrics, exchange, error);
    co_return;
  }
  if (const absl::Status taken = collector.Submit(*std::move(requests)); !taken.ok()) {
    const ApiError error = ErrorOf(taken, brain.RetryAfterSeconds());
    co_await Refuse(metrics, exchange, error);
    co_return;
  }
  metrics.prompt_tokens.Increment(static_cast<double>(generation.usage().prompt_tokens));

  bool gone = false;
  exchange.OnClientGone([&] {
    gone = true;
    collector.Wake();
  });
  const auto ended_as = [&](std::string_view outcome) {
    metrics.CountRequest(outcome);
    metrics.request_seconds.Observe(std::chrono::duration<double>(context.dispatcher.Now() - arrived).count());
  };

  bool streaming = false;
  while (true) {
    co_await collector.Wait();
    if (gone) {
      ended_as("cancelled");
      co_return;
    }
    if (!generation.failure().ok()) {
      const ApiError error = ErrorOf(generation.failure(), brain.RetryAfterSeconds());
      if (!streaming) {
        co_await Refuse(metrics, exchange, error);
        co_return;
      }
      std::string last;
      ReplyFormat::AppendError(error, &last);
      ended_as("error");
      co_await exchange.Write(std::move(last));
      co_return;
    }
    if (!job.request.stream) {
      generation.CancelStopped(collector);
      if (collector.open() > 0) continue;
      ended_as(generation.outcome());
      HttpResponse response;
      response.body = generation.Whole();
      co_await exchange.Respond(std::move(response));
      co_return;
    }
    // A stream begins when its first sequence runs: until then an error can still have a status of its own.
    if (!generation.started()) continue;
    std::string out;
    if (!streaming) {
      streaming = true;
      const bool open = co_await exchange.StartStream(200, "text/event-stream; charset=utf-8");
      if (!open) {
        ended_as("cancelled");
        co_return;
      }
      generation.Open(&out);
    }
    generation.Continue(collector, &out);
    // The usage holds what the cache held, which only the end of each sequence tells.
    const bool complete = generation.concluded() && (collector.open() == 0 || !job.request.include_usage);
    if (complete) {
      if (job.request.include_usage) job.format.AppendUsage(generation.usage(), &out);
      ReplyFormat::AppendDone(&out);
      ended_as(generation.outcome());
    }
    const bool written = co_await exchange.Write(std::move(out));
    if (!written && !complete) ended_as("cancelled");
    if (!written || complete) co_return;
  }
}

}  // namespace stria
