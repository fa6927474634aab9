#include "services/controller/admin_api.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "gtest/gtest.h"
#include "services/common/metrics.h"
#include "services/common/service_routes.h"
#include "services/controller/change_request.h"
#include "services/controller/openapi.h"
#include "services/controller/state_json.h"

namespace stria {
namespace {

using nlohmann::json;

// "GET /v1/history/{}": names of path parameters left out.
std::string RouteName(const std::string& method, std::string path) {
  for (size_t open; (open = path.find('{')) != std::string::npos && path[open + 1] != '}';) {
    path.erase(open + 1, path.find('}', open) - open - 1);
    if (path.find('{', open + 1) == std::string::npos) break;
  }
  return absl::AsciiStrToUpper(method) + " " + path;
}

TEST(AdminApi, EveryRouteIsDescribedAndEveryDescriptionHasARoute) {
  boost::asio::io_context io;
  const auto server = HttpServer::Create(io, {});
  ASSERT_TRUE(server.ok()) << server.status();
  Metrics metrics;
  ServiceRoutes routes;
  routes.metrics = &metrics;
  AddServiceRoutes(**server, routes);
  EventHub events(io);
  const std::string path = testing::TempDir() + "/routes.db";
  auto opened = OpenStateStore(path, 0);
  ASSERT_TRUE(opened.ok()) << opened.status();
  ControlLoop loop(*std::move(opened), events, SystemClock(), [](std::string_view, std::string_view) { return true; });
  CacheQueries caches(io, loop);
  const TokenTable tokens;
  AddAdminRoutes(**server, loop, events, caches, tokens, {});

  std::set<std::string> served, described;
  for (const auto& [method, route] : (*server)->Routes()) served.insert(RouteName(method, route));
  const json document = OpenApiDocument();
  for (const auto& [route, methods] : document["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) {
      described.insert(RouteName(method, route));
      EXPECT_TRUE(operation.contains("summary")) << route;
      const bool open = route == "/health" || route == "/ready" || route == "/metrics" || route == "/" || route == "/page/{file}";
      EXPECT_EQ(operation.contains("security"), open) << route << ": only probes, metrics and the page's files are open";
    }
  }
  EXPECT_EQ(served, described);
  EXPECT_GE(served.size(), 15u);
}

void CollectReferences(const json& value, std::set<std::string>& references) {
  if (value.is_object() && value.contains("$ref")) references.insert(value["$ref"].get<std::string>());
  if (value.is_structured()) {
    for (const json& part : value) CollectReferences(part, references);
  }
}

TEST(AdminApi, TheDescriptionIsWholeAndKnowsEverySetting) {
  const json document = OpenApiDocument();
  std::set<std::string> references;
  CollectReferences(document, references);
  for (const std::string& reference : references) {
    EXPECT_TRUE(document.contains(json::json_pointer(reference.substr(1)))) << reference;
  }
  const json& properties = document["components"]["schemas"]["Settings"]["properties"];
  const json defaults = ToJson(Settings{});
  for (const auto& [name, value] : defaults.items()) {
    ASSERT_TRUE(properties.contains(name)) << name;
    if (FindSetting(name) != nullptr) {
      EXPECT_EQ(properties[name]["default"], value) << name;
    }
  }
}

TEST(ChangeRequest, PartsMergeUnlessTheyReplace) {
  const auto apply = [](const char* body, const Settings& base) {
    const auto change = ParseChange(body);
    EXPECT_TRUE(change.ok()) << change.status();
    return ToJson(*Apply(*change, base));
  };
  const Settings base = *Apply(*ParseChange(R"({"tau": 0.5, "pins": {"1": {"keys": "int8"}, "2": {"keys": "int4"}}})"), {});
  const json merged = apply(R"({"pins": {"2": null, "3": {"values": "fp16"}}, "reason": "r"})", base);
  EXPECT_EQ(merged["tau"], 0.5);
  EXPECT_EQ(merged["pins"].size(), 2u);
  EXPECT_TRUE(merged["pins"].contains("1") && merged["pins"].contains("3"));
  const json replaced = apply(R"({"pins": {"3": {"values": "fp16"}}, "replace": true})", base);
  EXPECT_EQ(replaced["tau"], 0.5) << "what is not named stays";
  EXPECT_EQ(replaced["pins"].size(), 1u);
  EXPECT_TRUE(replaced["pins"].contains("3"));
}

}  // namespace
}  // namespace stria
