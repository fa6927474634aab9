#include "services/scheduler/api.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/random.h"
#include "model/tokenizer/utf8.h"
#include "services/common/access.h"
#include "services/scheduler/score.h"
#include "services/scheduler/status_json.h"

namespace stria {
namespace {

namespace asio = boost::asio;

uint64_t RandomSeed() {
  std::random_device entropy;
  return uint64_t{entropy()} << 32 | entropy();
}

// Counts a request in and out, however its coroutine ends.
class Active {
 public:
  explicit Active(size_t& count) : count_(count) { ++count_; }
  ~Active() { --count_; }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;

 private:
  size_t& count_;
};

ApiError InvalidPrompt(std::string message) { return {.message = std::move(message), .param = "prompt"}; }

std::string Text(const absl::Status& status) { return std::string(status.message().data(), status.message().size()); }

void AppendIds(const std::vector<int32_t>& ids, std::string* out) {
  *out += '[';
  for (size_t i = 0; i < ids.size(); ++i) absl::StrAppend(out, i > 0 ? "," : "", ids[i]);
  *out += ']';
}

}  // namespace

Api::Api(ApiContext context, const ChatTemplate* chat_template, std::string model_name)
    : context_(context), chat_template_(chat_template), model_name_(std::move(model_name)), id_seed_(RandomSeed()) {}

void Api::RouteWork(HttpServer& server, const char* path, Handler handler) {
  server.Route("POST", path, [this, handler](HttpExchange& exchange) -> asio::awaitable<void> {
    const Active active(active_);
    if (draining_) {
      const ApiError error{.status = 503, .message = "the scheduler is shutting down", .code = "draining", .retry_after = 1};
      co_await Refuse(context_.metrics, exchange, error);
      co_return;
    }
    co_await (this->*handler)(exchange);
  });
}

absl::Status Api::Guard(const HttpRequest& request) const {
  return IsOpenPath(request.path) ? absl::OkStatus() : context_.keys.TenantOf(request.authorization).status();
}

// Guarded, so the key is a known one.
std::string Api::Tenant(const HttpExchange& exchange) const {
  return context_.keys.TenantOf(exchange.request().authorization).value_or("");
}

void Api::AddRoutes(HttpServer& server) {
  server.SetGuard([this](const HttpRequest& request) { return Guard(request); });
  RouteWork(server, "/v1/chat/completions", &Api::Chat);
  RouteWork(server, "/v1/completions", &Api::Completions);
  RouteWork(server, "/v1/score", &Api::Score);
  RouteWork(server, "/tokenize", &Api::Tokenize);
  RouteWork(server, "/detokenize", &Api::Detokenize);
  server.Route("GET", "/v1/models", [this](HttpExchange& exchange) -> asio::awaitable<void> { co_await Models(exchange); });
  server.Route("GET", "/v1/status", [this](HttpExchange& exchange) -> asio::awaitable<void> {
    HttpResponse response;
    response.body = StatusJson(context_.dispatcher.brain(), context_.dispatcher.Now());
    co_await exchange.Respond(std::move(response));
  });
  server.Route("GET", "/live", [](HttpExchange& exchange) -> asio::awaitable<void> {
    HttpResponse response;
    response.body = "{\"status\":\"alive\"}";
    co_await exchange.Respond(std::move(response));
  });
}

absl::Status Api::Serving() const {
  return context_.dispatcher.brain().ready() ? absl::OkStatus() : absl::UnavailableError("no worker is ready");
}

absl::Status Api::Ready() const {
  return draining_ ? absl::UnavailableError("the scheduler is shutting down") : Serving();
}

std::string Api::ServedModel() const {
  if (!model_name_.empty()) return model_name_;
  const auto& workers = context_.dispatcher.brain().fleet().workers();
  if (!workers.empty()) last_model_ = workers.begin()->second.hello.model_name;
  return last_model_;
}

std::string Api::Fingerprint() const {
  const auto& workers = context_.dispatcher.brain().fleet().workers();
  return workers.empty() ? "fp_none" : absl::StrCat("fp_", workers.begin()->second.hello.model.substr(0, 12));
}

std::string Api::NewId(const char* prefix) {
  const auto words = Philox(id_seed_, 0, next_id_++);
  return absl::StrFormat("%s-%08x%08x%08x", prefix, words[0], words[1], words[2]);
}

RequestLimits Api::Limits() const { return {.vocab = context_.tokenizer.vocab_size(), .has_pack = context_.composer != nullptr}; }

std::optional<ApiError> Api::CheckModel(const std::string& model) const {
  const std::string served = ServedModel();
  if (model.empty() || served.empty() || model == served) return std::nullopt;
  return ApiError{.status = 404,
                  .message = absl::StrCat("the model ", Quote(Json(model)), " does not exist; this server has ", Quote(Json(served))),
                  .param = "model",
                  .code = "model_not_found"};
}

ReplyFormat Api::Format(ReplyKind kind, const GenerationRequest& request) {
  return ReplyFormat(kind, NewId(kind == ReplyKind::kChat ? "chatcmpl" : "cmpl"),
                     static_cast<int64_t>(context_.dispatcher.clock().UnixSeconds()), ServedModel(), Fingerprint(),
                     request.include_usage, request.sampling.top_logprobs >= 0, request.sampling.top_logprobs);
}

absl::StatusOr<std::vector<std::vector<int32_t>>> Api::Encode(const std::vector<PromptText>& prompts) const {
  std::vector<std::vector<int32_t>> all;
  for (const PromptText& prompt : prompts) {
    const std::string* text = std::get_if<std::string>(&prompt);
    all.push_back(text != nullptr ? context_.tokenizer.Encode(*text, {.add_bos = true}) : std::get<std::vector<int32_t>>(prompt));
    if (all.back().empty()) return absl::InvalidArgumentError("'prompt' is empty");
  }
  return all;
}

std::optional<ApiError> Api::Render(const std::vector<ChatMessage>& messages, std::vector<int32_t>* ids) const {
  if (chat_template_ == nullptr) {
    return ApiError{.message = "this model has no chat template: use /v1/completions", .param = "messages"};
  }
  absl::StatusOr<std::vector<int32_t>> rendered = chat_template_->Render(messages, /*add_generation_prompt=*/true);
  if (!rendered.ok()) return ApiError{.message = Text(rendered.status()), .param = "messages"};
  *ids = *std::move(rendered);
  return std::nullopt;
}

asio::awaitable<void> Api::Chat(HttpExchange& exchange) {
  ChatRequest request;
  std::vector<int32_t> prompt;
  std::optional<ApiError> error = ReadChat(exchange.request().body, Limits(), &request);
  if (!error) error = CheckModel(request.generation.model);
  if (!error) error = Render(request.messages, &prompt);
  if (error) {
    co_await Refuse(context_.metrics, exchange, *error);
    co_return;
  }
  GenerationJob job{.format = Format(ReplyKind::kChat, request.generation), .request = request.generation, .prompts = {}, .echoes = {}, .tenant = Tenant(exchange)};
  job.prompts.push_back(std::move(prompt));
  co_await Generate(context_, std::move(job), exchange);
}

asio::awaitable<void> Api::Completions(HttpExchange& exchange) {
  CompletionRequest request;
  std::optional<ApiError> error = ReadCompletion(exchange.request().body, Limits(), &request);
  if (!error) error = CheckModel(request.generation.model);
  std::vector<std::vector<int32_t>> prompts;
  if (!error) {
    absl::StatusOr<std::vector<std::vector<int32_t>>> encoded = Encode(request.prompts);
    if (encoded.ok()) {
      prompts = *std::move(encoded);
    } else {
      error = InvalidPrompt(Text(encoded.status()));
    }
  }
  if (error) {
    co_await Refuse(context_.metrics, exchange, *error);
    co_return;
  }
  GenerationJob job{.format = Format(ReplyKind::kCompletion, request.generation), .request = request.generation, .prompts = {}, .echoes = {}, .tenant = Tenant(exchange)};
  if (request.echo) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      const std::string* text = std::get_if<std::string>(&request.prompts[i]);
      job.echoes.push_back(text != nullptr ? *text : ReplaceInvalidUtf8(context_.tokenizer.Decode(prompts[i])));
    }
  }
  job.prompts = std::move(prompts);
  co_await Generate(context_, std::move(job), exchange);
}

asio::awaitable<void> Api::Score(HttpExchange& exchange) {
  ScoreRequest request;
  std::optional<ApiError> error = ReadScore(exchange.request().body, Limits(), &request);
  if (!error) error = CheckModel(request.model);
  ScoreJob job{.head = {}, .kv = request.kv, .urgency = request.urgency, .tenant = Tenant(exchange), .top_logprobs = request.top_logprobs, .prompts = {}};
  if (!error) {
    absl::StatusOr<std::vector<std::vector<int32_t>>> encoded = Encode(request.prompts);
    if (encoded.ok()) {
      job.prompts = *std::move(encoded);
    } else {
      error = InvalidPrompt(Text(encoded.status()));
    }
  }
  for (const auto& prompt : job.prompts) {
    if (!error && prompt.size() < 2) error = InvalidPrompt("'prompt' is one token: a score needs at least two");
  }
  if (error) {
    co_await Refuse(context_.metrics, exchange, *error);
    co_return;
  }
  job.head = absl::StrCat("{\"id\":\"", NewId("score"), "\",\"object\":\"score\",\"created\":",
                          static_cast<int64_t>(context_.dispatcher.clock().UnixSeconds()), ",\"model\":");
  AppendJsonString(ServedModel(), &job.head);
  co_await AnswerScore(context_, std::move(job), exchange);
}

asio::awaitable<void> Api::Tokenize(HttpExchange& exchange) {
  TokenizeRequest request;
  std::optional<ApiError> error = ReadTokenize(exchange.request().body, Limits(), &request);
  if (!error) error = CheckModel(request.model);
  std::vector<int32_t> ids;
  if (!error && !request.messages.empty()) {
    error = Render(request.messages, &ids);
  } else if (!error) {
    ids = context_.tokenizer.Encode(request.text, {.add_bos = request.add_special_tokens});
  }
  if (error) {
    co_await Refuse(context_.metrics, exchange, *error);
    co_return;
  }
  HttpResponse response;
  response.body = absl::StrCat("{\"count\":", ids.size(), ",\"max_model_len\":", context_.dispatcher.brain().max_context(), ",\"tokens\":");
  AppendIds(ids, &response.body);
  response.body += '}';
  co_await exchange.Respond(std::move(response));
}

asio::awaitable<void> Api::Detokenize(HttpExchange& exchange) {
  DetokenizeRequest request;
  std::optional<ApiError> error = ReadDetokenize(exchange.request().body, Limits(), &request);
  if (!error) error = CheckModel(request.model);
  if (error) {
    co_await Refuse(context_.metrics, exchange, *error);
    co_return;
  }
  HttpResponse response;
  response.body = "{\"prompt\":";
  AppendJsonString(ReplaceInvalidUtf8(context_.tokenizer.Decode(request.tokens, {.skip_special = false})), &response.body);
  response.body += '}';
  co_await exchange.Respond(std::move(response));
}

asio::awaitable<void> Api::Models(HttpExchange& exchange) {
  HttpResponse response;
  response.body = "{\"object\":\"list\",\"data\":[";
  if (const std::string served = ServedModel(); !served.empty()) {
    response.body += "{\"id\":";
    AppendJsonString(served, &response.body);
    absl::StrAppend(&response.body, ",\"object\":\"model\",\"created\":0,\"owned_by\":\"stria\",\"max_model_len\":",
                    context_.dispatcher.brain().max_context(), "}");
  }
  response.body += "]}";
  co_await exchange.Respond(std::move(response));
}

}  // namespace stria
