// What operators see of the real controller and striactl.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/controller/controller_fixture.h"

namespace stria {
namespace {

using nlohmann::json;

TEST_F(ControllerProcessTest, CommandsDoWhatTheySayWithStableExitCodes) {
  EXPECT_EQ(Striactl({"status"}).code, 1) << "no worker is not a synced fleet";
  EXPECT_EQ(Striactl({"tau", "get"}).out, "0.022\n");
  EXPECT_EQ(json::parse(Striactl({"tau", "get", "-o", "json"}).out)["tau"], 0.022);
  const CommandResult set = Striactl({"tau", "set", "0.05", "--reason", "more room", "--who", "me"});
  EXPECT_EQ(set.code, 0) << set.err;
  EXPECT_EQ(set.out, "revision 1: tau 0.022 -> 0.05 (me: more room)\n");
  EXPECT_EQ(Striactl({"tau", "set", "0.05"}).out, "nothing to change (revision 1)\n");
  EXPECT_EQ(Striactl({"canary", "rate", "set", "1/32"}).code, 0);
  EXPECT_EQ(Striactl({"canary", "rate", "get"}).out, "0.03125\n");
  EXPECT_EQ(Striactl({"settings", "set", "alpha", "0.2", "--dry-run"}).code, 0);
  EXPECT_EQ(Striactl({"settings", "set", "alpha", "0.2", "--check-rev", "1"}).code, 4);
  EXPECT_EQ(Striactl({"settings", "set", "alpha", "0.2", "--check-rev", "2"}).code, 0);
  EXPECT_EQ(Striactl({"freeze"}).code, 0);
  EXPECT_EQ(Get("/v1/status")["frozen"], true);
  EXPECT_EQ(Striactl({"thaw"}).code, 0);
  for (const std::vector<std::string>& bad : std::vector<std::vector<std::string>>{
           {"tau", "set", "0"}, {"tau", "set", "much"}, {"tau", "set", "--", "-1"}, {"tau", "set"}, {"canary", "rate", "set", "2"},
           {"settings", "set", "taw", "1"}, {"settings", "set", "demote_after", "2.5"}, {"dance"}, {}, {"tiers", "--model", "x"},
           {"status", "-o", "xml"}, {"status", "--controller", "nowhere"}}) {
    const CommandResult result = Striactl(bad);
    EXPECT_EQ(result.code, 2) << (bad.empty() ? "" : bad[0]) << result.out;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_TRUE(result.err.starts_with("striactl: ")) << result.err;
  }
  const json history = json::parse(Striactl({"history", "-o", "json"}).out);
  ASSERT_EQ(history.size(), 5u);
  EXPECT_EQ(history[0]["revision"], 1);
  EXPECT_EQ(history[0]["reason"], "more room");
  EXPECT_EQ(history[0]["who"], "me");
  EXPECT_EQ(history[0]["before"]["tau"], 0.022);
  EXPECT_EQ(history[4]["changed"], json({"frozen"}));

  controller_->process().Kill();
  const CommandResult away = Striactl({"status"});
  EXPECT_EQ(away.code, 3);
  EXPECT_EQ(std::count(away.err.begin(), away.err.end(), '\n'), 1) << away.err;
}

TEST_F(ControllerProcessTest, AdminApiSaysWhatIsWrong) {
  EXPECT_EQ(Send("PUT", "/v1/settings", "{\"tau\": 0.04, \"check_revision\": 7}").status, 409);
  const HttpReply bad = Send("PUT", "/v1/settings", "{\"tau\": -3}");
  EXPECT_EQ(bad.status, 400);
  EXPECT_NE(bad.body.find("tau = -3"), std::string::npos) << bad.body;
  for (const char* body : {"[", "[]", "3", "{\"who\": 3}", "{\"check_revision\": -1}", "{\"tau\": [[[[1]]]]}", "{\"x\": 1}"}) {
    EXPECT_EQ(Send("PUT", "/v1/settings", body).status, 400) << body;
  }
  EXPECT_EQ(Send("POST", "/v1/freeze", "{\"tau\": 1}").status, 400);
  EXPECT_EQ(Send("PUT", "/v1/settings", std::string(60'000, '[')).status, 400);
  EXPECT_EQ(Send("GET", "/v1/tiers?model=none", "").status, 404);
  EXPECT_EQ(Send("GET", "/v1/history?from=x", "").status, 400);
  EXPECT_EQ(Send("GET", "/ready", "").status, 200);
  EXPECT_EQ(Get("/v1/settings")["revision"], 0);
  EXPECT_EQ(Get("/config")["tiers-port"], 0);
}

TEST_F(ControllerProcessTest, WatchTellsThePastThenThePresent) {
  ASSERT_EQ(Striactl({"tau", "set", "0.03"}).code, 0);
  ASSERT_EQ(Striactl({"tau", "set", "0.04"}).code, 0);
  ChildProcess watch({kStriactl, "--controller", absl::StrCat("http://127.0.0.1:", ports_.http), "watch", "--from", "2", "-o", "json"},
                     folder_ / "watch");
  ASSERT_TRUE(Eventually([&] { return watch.Out().find("\"revision\":2") != std::string::npos; }));
  EXPECT_EQ(watch.Out().find("\"revision\":1"), std::string::npos);
  StartWorker("w");
  EXPECT_TRUE(Eventually([&] { return watch.Out().find("\"state\":\"SYNCED\"") != std::string::npos; }));
  EXPECT_NE(watch.Out().find("\"event\":\"tiers\""), std::string::npos);
  ASSERT_EQ(Striactl({"freeze"}).code, 0);
  EXPECT_TRUE(Eventually([&] { return watch.Out().find("\"revision\":3") != std::string::npos; }));
  controller_->process().Kill();
  EXPECT_EQ(watch.Wait(), 3);
}

TEST_F(ControllerProcessTest, ASecondControllerOnTheSameFileDoesNotStart) {
  ChildProcess second({kController, "--http-port", "0", "--telemetry-port", "0", "--tiers-port", "0", "--state", folder_ / "state.db"},
                      folder_ / "second");
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_NE(second.Err().find("state.db"), std::string::npos) << second.Err();
}

TEST_F(ControllerProcessTest, StopsWhenAsked) {
  controller_->process().Signal(SIGTERM);
  EXPECT_EQ(controller_->process().Wait(), 0);
}

}  // namespace
}  // namespace stria
