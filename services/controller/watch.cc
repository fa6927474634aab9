#include "services/controller/watch.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/http_error.h"
#include "services/controller/query.h"
#include "services/controller/state_json.h"
#include "services/controller/status_json.h"

namespace stria {
namespace {

using nlohmann::json;

std::string SseText(const std::string& name, const json& data, uint64_t revision) {
  return absl::StrCat("event: ", name, "\nid: ", revision, "\ndata: ", Dump(data), "\n\n");
}

}  // namespace

boost::asio::awaitable<void> Watch(ControlLoop& loop, EventHub& events, HttpExchange& exchange) {
  const absl::StatusOr<uint64_t> from = QueryNumber(exchange.request(), "from", loop.brain().revision() + 1);
  if (!from.ok()) {
    const HttpResponse refusal = ErrorResponse(from.status());
    co_await exchange.Respond(refusal);
    co_return;
  }
  const auto wants = [&exchange](const char* what) {
    const auto it = exchange.request().query.find(what);
    return it != exchange.request().query.end() && it->second == "true";
  };
  // Subscribed before the record is read, so that no revision falls in between; those that come both ways are told once.
  const std::shared_ptr<EventHub::Watcher> watcher = events.Watch(wants("firings"));
  const absl::StatusOr<std::vector<Revision>> past = loop.store().Revisions(*from, kMaxListed);
  if (!past.ok()) {
    const HttpResponse refusal = ErrorResponse(past.status());
    co_await exchange.Respond(refusal);
    co_return;
  }
  uint64_t told = 0;
  std::string text = ": watching\n\n";
  if (wants("snapshot")) text += SseText("snapshot", SnapshotJson(loop), loop.brain().revision());
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
    } else if (event->name != "revision" || event->revision > told) {
      text += SseText(event->name, event->data, event->revision);
    }
    if (!text.empty()) here = co_await exchange.Write(text);
  }
}

}  // namespace stria
