#include "services/controller/admin_api.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "services/common/http_error.h"
#include "services/controller/change_request.h"
#include "services/controller/live_page.h"
#include "services/controller/openapi.h"
#include "services/controller/query.h"
#include "services/controller/state_json.h"
#include "services/controller/status_json.h"
#include "services/controller/watch.h"

namespace stria {
namespace {

using boost::asio::awaitable;
using nlohmann::json;

constexpr char kPlanPath[] = "/v1/plan";

HttpResponse Answer(const absl::StatusOr<json>& result) {
  if (!result.ok()) return ErrorResponse(result.status());
  return HttpResponse{.body = Dump(*result) + "\n"};
}

class AdminApi {
 public:
  AdminApi(ControlLoop& loop, const TokenTable& tokens) : loop_(loop), tokens_(tokens) {}

  absl::StatusOr<json> Change(const HttpRequest& request) const {
    STRIA_ASSIGN_OR_RETURN(const ChangeRequest change, ParseChange(request.body));
    return Carry(request, change);
  }

  absl::StatusOr<json> Plan(const HttpRequest& request) const {
    STRIA_ASSIGN_OR_RETURN(ChangeRequest change, ParseChange(request.body));
    change.dry_run = true;
    return Carry(request, change);
  }

  absl::StatusOr<json> SetFrozen(const HttpRequest& request, bool frozen) const {
    STRIA_ASSIGN_OR_RETURN(ChangeRequest change, ParseChange(request.body));
    STRIA_RETURN_IF_ERROR(RequireNothingElse(change));
    change.settings["frozen"] = frozen;
    return Carry(request, change);
  }

  absl::StatusOr<json> Undo(const HttpRequest& request) const {
    STRIA_ASSIGN_OR_RETURN(ChangeRequest change, ParseChange(request.body));
    json wanted = loop_.brain().revision();
    if (change.settings.contains("revision")) {
      wanted = change.settings["revision"];
      change.settings.erase("revision");
    }
    STRIA_RETURN_IF_ERROR(RequireNothingElse(change));
    if (!wanted.is_number_unsigned()) return absl::InvalidArgumentError("revision must be a revision's number");
    if (loop_.brain().revision() == 0) return absl::NotFoundError("there is no revision to undo");
    STRIA_ASSIGN_OR_RETURN(const Revision undone, loop_.store().FindRevision(wanted.get<uint64_t>()));
    change.settings = UndoChange(ToJson(loop_.brain().settings()), ToJson(undone.before), ToJson(undone.after));
    change.replace = true;
    if (change.reason.empty()) change.reason = absl::StrCat("undo of revision ", undone.number);
    return Carry(request, change);
  }

  absl::StatusOr<json> History(const HttpRequest& request) const {
    STRIA_ASSIGN_OR_RETURN(const uint64_t from, QueryNumber(request, "from", 0));
    STRIA_ASSIGN_OR_RETURN(const uint64_t limit, QueryNumber(request, "limit", 1000));
    STRIA_ASSIGN_OR_RETURN(const std::vector<Revision> revisions, loop_.store().Revisions(from, std::min(limit, kMaxListed)));
    json list = json::array();
    for (const Revision& revision : revisions) list.push_back(ToJson(revision));
    return json{{"revision", loop_.brain().revision()}, {"revisions", std::move(list)}};
  }

  absl::StatusOr<json> OneRevision(const HttpRequest& request) const {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(request.path_args[0], &number)) {
      return absl::InvalidArgumentError(absl::StrCat("revision ", request.path_args[0], ": must be a whole number"));
    }
    STRIA_ASSIGN_OR_RETURN(const Revision revision, loop_.store().FindRevision(number));
    return ToJson(revision);
  }

  absl::StatusOr<json> ListFlips(const HttpRequest& request) const {
    STRIA_ASSIGN_OR_RETURN(const uint64_t limit, QueryNumber(request, "limit", 1000));
    STRIA_ASSIGN_OR_RETURN(const std::vector<Flip> flips, loop_.store().Flips(std::min(limit, kMaxListed)));
    json list = json::array();
    for (const Flip& flip : flips) list.push_back(ToJson(flip));
    return json{{"flips", std::move(list)}};
  }

 private:
  static absl::Status RequireNothingElse(const ChangeRequest& change) {
    if (change.settings.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(change.settings.begin().key(), ": not a field of this request"));
  }

  // Who is written into the record: the token's owner, whatever the request says.
  std::string Author(const HttpRequest& request, const std::string& said) const {
    if (tokens_.empty()) return said;
    const absl::StatusOr<Caller> caller = tokens_.Identify(request.authorization);
    const std::string name = caller.ok() ? caller->name : "?";  // the guard let it pass
    return said.empty() || said == name ? name : absl::StrCat(name, " (", said, ")");
  }

  absl::StatusOr<json> Carry(const HttpRequest& request, const ChangeRequest& change) const {
    STRIA_ASSIGN_OR_RETURN(const Settings after, Apply(change, loop_.brain().settings()));
    json plan;
    if (change.dry_run) plan = PlanJson(loop_, after);
    STRIA_ASSIGN_OR_RETURN(const Revision revision, loop_.ChangeSettings(after, change.check_revision, Author(request, change.who),
                                                                         change.reason, change.dry_run));
    json answer = ToJson(revision);
    answer["dry_run"] = change.dry_run;
    if (change.dry_run) answer["plan"] = std::move(plan);
    return answer;
  }

  ControlLoop& loop_;
  const TokenTable& tokens_;
};

}  // namespace

void AddAdminRoutes(HttpServer& server, ControlLoop& loop, EventHub& events, CacheQueries& caches, const TokenTable& tokens,
                     const Listening& listening) {
  // Asking what a change would do changes nothing, though its question has a body. The live page's files are open, its data is not.
  server.SetGuard([guard = TokenGuard(tokens, {kPlanPath})](const HttpRequest& request) {
    return IsLivePage(request.path) ? absl::OkStatus() : guard(request);
  });
  const AdminApi api(loop, tokens);
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
  route("GET", "/v1/tiers", [&loop](const HttpRequest& request) {
    const auto model = request.query.find("model");
    return TiersJson(loop, model == request.query.end() ? "" : model->second);
  });
  route("GET", "/v1/target", [&loop](const HttpRequest& request) -> absl::StatusOr<json> {
    STRIA_ASSIGN_OR_RETURN(const uint64_t limit, QueryNumber(request, "limit", 20));
    return TargetJson(loop, std::min(limit, kMaxListed));
  });
  route("GET", "/v1/settings", [&loop](const HttpRequest&) {
    return json{{"revision", loop.brain().revision()}, {"settings", ToJson(loop.brain().settings())}};
  });
  route("PUT", "/v1/settings", [api](const HttpRequest& request) { return api.Change(request); });
  route("POST", kPlanPath, [api](const HttpRequest& request) { return api.Plan(request); });
  route("POST", "/v1/freeze", [api](const HttpRequest& request) { return api.SetFrozen(request, true); });
  route("POST", "/v1/thaw", [api](const HttpRequest& request) { return api.SetFrozen(request, false); });
  route("POST", "/v1/undo", [api](const HttpRequest& request) { return api.Undo(request); });
  route("GET", "/v1/history", [api](const HttpRequest& request) { return api.History(request); });
  route("GET", "/v1/history/{}", [api](const HttpRequest& request) { return api.OneRevision(request); });
  route("GET", "/v1/flips", [api](const HttpRequest& request) { return api.ListFlips(request); });
  server.Route("GET", "/v1/watch", [&](HttpExchange& exchange) { return Watch(loop, events, exchange); });
  server.Route("GET", "/v1/cache", [&](HttpExchange& exchange) { return caches.Answer(exchange); });
  AddLivePage(server);
  route("GET", "/openapi.json", [document = OpenApiDocument()](const HttpRequest&) { return document; });
}

}  // namespace stria
