#include "services/controller/admin_api.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "services/common/http_error.h"
#include "services/controller/state_json.h"
#include "services/controller/status_json.h"

namespace stria {
namespace {

using boost::asio::awaitable;
using nlohmann::json;

constexpr size_t kMaxWho = 256, kMaxReason = 2000;
constexpr uint64_t kMaxListed = 10'000;

// The body of a changing request: settings by name beside the fields that are about the change itself.
struct ChangeRequest {
  json settings = json::object();
  std::optional<uint64_t> check_revision;
  std::string who, reason;
  bool dry_run = false;
};

absl::StatusOr<std::string> TakeText(json& body, const char* name, size_t max_bytes) {
  if (!body.contains(name)) return std::string();
  if (!body[name].is_string()) return absl::InvalidArgumentError(absl::StrCat(name, " must be a string"));
  std::string text = body[name].get<std::string>();
  body.erase(name);
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has ", text.size(), " bytes; at most ", max_bytes, " are kept"));
  }
  return text;
}

absl::StatusOr<ChangeRequest> ParseChange(const std::string& text) {
  json body = text.empty() ? json::object() : json::parse(text, nullptr, false);
  if (!body.is_object()) return absl::InvalidArgumentError("the body must be a JSON object");
  ChangeRequest change;
  STRIA_ASSIGN_OR_RETURN(change.who, TakeText(body, "who", kMaxWho));
  STRIA_ASSIGN_OR_RETURN(change.reason, TakeText(body, "reason", kMaxReason));
  if (body.contains("check_revision")) {
    if (!body["check_revision"].is_number_unsigned()) {
      return absl::InvalidArgumentError("check_revision must be a revision's number");
    }
    change.check_revision = body["check_revision"].get<uint64_t>();
    body.erase("check_revision");
  }
  if (body.contains("dry_run")) {
    if (!body["dry_run"].is_boolean()) return absl::InvalidArgumentError("dry_run must be true or false");
    change.dry_run = body["dry_run"].get<bool>();
    body.erase("dry_run");
  }
  change.settings = std::move(body);
  return change;
}

// Number in the query, `otherwise` when absent.
absl::StatusOr<uint64_t> QueryNumber(const HttpRequest& request, const std::string& name, uint64_t otherwise) {
  const auto it = request.query.find(name);
  if (it == request.query.end()) return otherwise;
  uint64_t value = 0;
  if (!absl::SimpleAtoi(it->second, &value)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " = ", it->second, ": must be a whole number"));
  }
  return value;
}

HttpResponse Answer(const absl::StatusOr<json>& result) {
  if (!result.ok()) return ErrorResponse(result.status());
  return HttpResponse{.body = Dump(*result) + "\n"};
}

absl::StatusOr<json> Change(ControlLoop& loop, ChangeRequest change) {
  STRIA_ASSIGN_OR_RETURN(const Settings after, SettingsFromJson(change.settings, loop.brain().settings()));
  STRIA_ASSIGN_OR_RETURN(const Revision revision, loop.ChangeSettings(after, change.check_revision, std::move(change.who),
                                                                      std::move(change.reason), change.dry_run));
  json answer = ToJson(revision);
  answer["dry_run"] = change.dry_run;
  return answer;
}

absl::StatusOr<json> SetFrozen(ControlLoop& loop, const HttpRequest& request, bool frozen) {
  STRIA_ASSIGN_OR_RETURN(ChangeRequest change, ParseChange(request.body));
  if (!change.settings.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(change.settings.begin().key(), ": not a field of this request"));
  }
  change.settings["frozen"] = frozen;
  return Change(loop, std::move(change));
}

absl::StatusOr<json> History(ControlLoop& loop, const HttpRequest& request) {
  STRIA_ASSIGN_OR_RETURN(const uint64_t from, QueryNumber(request, "from", 0));
  STRIA_ASSIGN_OR_RETURN(const uint64_t limit, QueryNumber(request, "limit", 1000));
  STRIA_ASSIGN_OR_RETURN(const std::vector<Revision> revisions, loop.store().Revisions(from, std::min(limit, kMaxListed)));
  json list = json::array();
  for (const Revision& revision : revisions) list.push_back(ToJson(revision));
  return json{{"revision", loop.brain().revision()}, {"revisions", std::move(list)}};
}

absl::StatusOr<json> ListFlips(ControlLoop& loop, const HttpRequest& request) {
  STRIA_ASSIGN_OR_RETURN(const uint64_t limit, QueryNumber(request, "limit", 1000));
  STRIA_ASSIGN_OR_RETURN(const std::vector<Flip> flips, loop.store().Flips(std::min(limit, kMaxListed)));
  json list = json::array();
  for (const Flip& flip : flips) list.push_back(ToJson(flip));
  return json{{"flips", std::move(list)}};
}

std::string SseText(const std::string& name, const json& data, uint64_t revision) {
  return absl::StrCat("event: ", name, "\nid: ", revision, "\ndata: ", Dump(data), "\n\n");
}

// Server-sent events: revisions from number `from` on out of the record, then whatever happens. A comment every few seconds
// keeps the connection alive and finds out when the client is gone.
awaitable<void> Watch(ControlLoop& loop, EventHub& events, HttpExchange& exchange) {
  const absl::StatusOr<uint64_t> from = QueryNumber(exchange.request(), "from", loop.brain().revision() + 1);
  if (!from.ok()) {
    co_await exchange.Respond(ErrorResponse(from.status()));
    co_return;
  }
  const auto wants = exchange.request().query.find("firings");
  const bool firings = wants != exchange.request().query.end() && wants->second == "true";
  // Subscribed before the record is read, so that no revision falls in between; those that come both ways are told once.
  const std::shared_ptr<EventHub::Watcher> watcher = events.Watch();
  const absl::StatusOr<std::vector<Revision>> past = loop.store().Revisions(*from, kMaxListed);
  if (!past.ok()) {
    co_await exchange.Respond(ErrorResponse(past.status()));
    co_return;
  }
  uint64_t told = 0;
  std::string text = ": watching\n\n";
  for (const Revision& revision : *past) {
    told = revision.number;
    text += SseText("revision", ToJson(revision), revision.number);
  }
  bool here = co_await exchange.StartStream(200, "text/event-stream");
  if (here) here = co_await exchange.Write(std::move(text));
  while (here) {
    const std::optional<Event> event = co_await watcher->Next(std::chrono::seconds(5));
    text.clear();
    if (const uint64_t lost = watcher->TakeLost(); lost > 0) {
      text += SseText("lost", json{{"events", lost}}, loop.brain().revision());
    }
    if (!event.has_value()) {
      text += ": still here\n\n";
    } else if ((event->name != "firing" || firings) && (event->name != "revision" || event->revision > told)) {
      text += SseText(event->name, event->data, event->revision);
    }
    if (!text.empty()) here = co_await exchange.Write(text);
  }
}

}  // namespace

void AddAdminRoutes(HttpServer& server, ControlLoop& loop, EventHub& events, const Listening& listening) {
  const auto route = [&](const char* method, const char* path, std::function<absl::StatusOr<json>(const HttpRequest&)> handle) {
    server.Route(method, path, [handle = std::move(handle)](HttpExchange& exchange) -> awaitable<void> {
      co_await exchange.Respond(Answer(handle(exchange.request())));
    });
  };
  route("GET", "/v1/status", [&loop, listening](const HttpRequest&) {
    json status = StatusJson(loop);
    status["listening"] = {{"http", listening.http}, {"telemetry", listening.telemetry}, {"tiers", listening.tiers}};
    return status;
  });
  route("GET", "/v1/tiers", [&](const HttpRequest& request) {
    const auto model = request.query.find("model");
    return TiersJson(loop, model == request.query.end() ? "" : model->second);
  });
  route("GET", "/v1/settings", [&](const HttpRequest&) {
    return json{{"revision", loop.brain().revision()}, {"settings", ToJson(loop.brain().settings())}};
  });
  route("PUT", "/v1/settings", [&](const HttpRequest& request) -> absl::StatusOr<json> {
    STRIA_ASSIGN_OR_RETURN(ChangeRequest change, ParseChange(request.body));
    return Change(loop, std::move(change));
  });
  route("POST", "/v1/freeze", [&](const HttpRequest& request) { return SetFrozen(loop, request, true); });
  route("POST", "/v1/thaw", [&](const HttpRequest& request) { return SetFrozen(loop, request, false); });
  route("GET", "/v1/history", [&](const HttpRequest& request) { return History(loop, request); });
  route("GET", "/v1/flips", [&](const HttpRequest& request) { return ListFlips(loop, request); });
  server.Route("GET", "/v1/watch", [&](HttpExchange& exchange) { return Watch(loop, events, exchange); });
}

}  // namespace stria
