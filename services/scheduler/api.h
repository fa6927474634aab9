// The HTTP routes of the scheduler: OpenAI's, and a few beside them (docs/api.md).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "absl/status/statusor.h"
#include "model/tokenizer/chat_template.h"
#include "services/scheduler/generation.h"

namespace stria {

class Api {
 public:
  // `chat_template`: absent for models that have none; chats are then refused. `model_name`: the id that clients use; empty:
  // what the workers call it. Everything given outlives this.
  Api(ApiContext context, const ChatTemplate* chat_template, std::string model_name);

  // Routes, and a guard before them and all others of the server.
  void AddRoutes(HttpServer& server);

  // From now on new work is refused with 503; what runs goes on.
  void Drain() { draining_ = true; }
  size_t active() const { return active_; }  // requests being answered
  absl::Status Serving() const;   // a worker is ready
  absl::Status Ready() const;     // and requests are taken

 private:
  using Handler = boost::asio::awaitable<void> (Api::*)(HttpExchange&);

  void RouteWork(HttpServer& server, const char* path, Handler handler);
  boost::asio::awaitable<void> Chat(HttpExchange& exchange);
  boost::asio::awaitable<void> Completions(HttpExchange& exchange);
  boost::asio::awaitable<void> Score(HttpExchange& exchange);
  boost::asio::awaitable<void> Tokenize(HttpExchange& exchange);
  boost::asio::awaitable<void> Detokenize(HttpExchange& exchange);
  boost::asio::awaitable<void> Models(HttpExchange& exchange);

  absl::Status Guard(const HttpRequest& request) const;
  std::string Tenant(const HttpExchange& exchange) const;
  RequestLimits Limits() const;
  std::optional<ApiError> CheckModel(const std::string& model) const;
  std::string ServedModel() const;
  std::string Fingerprint() const;
  ReplyFormat Format(ReplyKind kind, const GenerationRequest& request);
  std::string NewId(const char* prefix);
  absl::StatusOr<std::vector<std::vector<int32_t>>> Encode(const std::vector<PromptText>& prompts) const;
  std::optional<ApiError> Render(const std::vector<ChatMessage>& messages, std::vector<int32_t>* ids) const;

  const ApiContext context_;
  const ChatTemplate* chat_template_;
  const std::string model_name_;
  mutable std::string last_model_;  // what the last worker called it
  const uint64_t id_seed_;
  uint64_t next_id_ = 0;
  size_t active_ = 0;
  bool draining_ = false;
};

}  // namespace stria
