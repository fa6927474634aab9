// The real controller and striactl, as processes, with workers that speak the protocol.
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "proto/codec.h"
#include "services/common/bus.h"
#include "services/common/http_client.h"
#include "tests/integration/controller/child_process.h"

namespace stria {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kController[] = "services/controller/controller";
constexpr char kStriactl[] = "services/ctl/striactl";
constexpr char kFakeWorker[] = "tests/integration/controller/fake_worker";

// Waits for something that must come; how long it may take says nothing about what is tested.
bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

struct CommandResult {
  int code;
  std::string out, err;
};

class ControllerProcessTest : public testing::Test {
 protected:
  ControllerProcessTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / absl::StrCat(info->name(), "-", getpid());
    fs::create_directories(folder_);
    StartController();
  }
  ~ControllerProcessTest() override {
    workers_.clear();
    controller_.reset();
    fs::remove_all(folder_);
  }

  // The same state file every time; ports from the kernel at first, kept afterwards, as a restarted service keeps its own.
  void StartController() {
    const auto port = [](const std::string& text) { return text.empty() ? "0" : text; };
    controller_ = std::make_unique<ChildProcess>(
        std::vector<std::string>{kController, "--http-port", port(http_), "--telemetry-port", port(telemetry_), "--tiers-port",
                                 port(tiers_), "--state", folder_ / "state.db"},
        folder_ / absl::StrCat("controller", ++starts_));
    ASSERT_TRUE(Eventually([&] { return controller_->Err().find("serving") != std::string::npos; })) << controller_->Err();
    const std::string log = controller_->Err();
    const auto find = [&](const char* key) {
      const size_t at = log.find(key, log.find("\"serving\""));
      const size_t colon = log.find(':', at);
      return log.substr(colon + 1, log.find(' ', colon) - colon - 1);
    };
    http_ = find(" http="), telemetry_ = find(" telemetry="), tiers_ = find(" tiers=");
    client_ = std::make_unique<HttpClient>("127.0.0.1", std::stoi(http_), 30);
  }

  ChildProcess& StartWorker(const std::string& name, int incarnation = 1, uint64_t epoch = 0) {
    workers_[name] = nullptr;  // the former incarnation is gone first
    workers_[name] = std::make_unique<ChildProcess>(
        std::vector<std::string>{kFakeWorker, tiers_, name, std::to_string(incarnation), std::to_string(epoch)},
        folder_ / absl::StrCat(name, incarnation));
    return *workers_[name];
  }

  json Get(const std::string& target) {
    const auto reply = client_->Get(target);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? json::parse(reply->body, nullptr, false) : json();
  }
  HttpReply Send(const char* method, const std::string& target, const std::string& body) {
    const auto reply = client_->Request(method, target, body);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.value_or(HttpReply{});
  }
  uint64_t Epoch() {
    const json status = Get("/v1/status");
    return status["models"].empty() ? 0 : status["models"][0]["epoch"].get<uint64_t>();
  }
  std::string State(const std::string& name) {
    const json status = Get("/v1/status");
    for (const json& worker : status["workers"]) {
      if (worker["worker"] == name) return worker["state"];
    }
    return "unknown";
  }
  bool Synced(const std::string& name) {
    return Eventually([&] { return State(name) == "SYNCED"; });
  }
  std::string Keys(int layer) { return Get("/v1/tiers")["layers"][layer]["keys"]; }
  double Metric(const std::string& series) {
    const auto reply = client_->Get("/metrics");
    if (!reply.ok()) return -1;
    for (const absl::string_view line : absl::StrSplit(reply->body, '\n')) {
      if (std::string(line).starts_with(series + " ")) return std::stod(std::string(line.substr(series.size() + 1)));
    }
    return -1;
  }

  CommandResult Striactl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {kStriactl, "--controller", absl::StrCat("http://127.0.0.1:", http_)});
    ChildProcess child(std::move(arguments), folder_ / "striactl");
    const int code = child.Wait();
    return {code, child.Out(), child.Err()};
  }

  // A telemetry socket of a worker whose hello another process says.
  BusSocket& Telemetry() {
    if (publisher_ == nullptr) {
      auto opened = BusSocket::Connect(context_, BusSocket::Type::kPub, absl::StrCat("tcp://127.0.0.1:", telemetry_));
      EXPECT_TRUE(opened.ok());
      publisher_ = *std::move(opened);
    }
    return *publisher_;
  }
  CanaryFrame Frame(uint64_t number, std::array<float, 3> kl) {
    CanaryFrame frame;
    frame.worker = "w";
    frame.incarnation = 1;
    frame.model = "fingerprint";
    frame.number = number;
    for (uint32_t layer = 0; layer < 3; ++layer) frame.readings.push_back({.layer = layer, .kl = kl});
    return frame;
  }
  // Telemetry may be lost while a subscription is under way, so fires until the controller has seen one. Returns the next number.
  uint64_t FireUntilSeen(std::array<float, 3> kl) {
    uint64_t number = 1;
    EXPECT_TRUE(Eventually([&] {
      Telemetry().Send(Encode(Frame(number++, kl)));
      return Metric("stria_controller_frames_accepted_total") > 0;
    }));
    return number;
  }

  fs::path folder_;
  std::string http_, telemetry_, tiers_;
  int starts_ = 0;
  std::unique_ptr<ChildProcess> controller_;
  std::map<std::string, std::unique_ptr<ChildProcess>> workers_;
  std::unique_ptr<HttpClient> client_;
  BusContext context_;
  std::unique_ptr<BusSocket> publisher_;
};

TEST_F(ControllerProcessTest, LateStalledAndRestartedWorkersEndAtTheCurrentEpoch) {
  StartWorker("a");
  ChildProcess& stalled = StartWorker("stalled");
  StartWorker("restarted");
  for (const char* name : {"a", "stalled", "restarted"}) ASSERT_TRUE(Synced(name)) << name;

  stalled.Signal(SIGSTOP);
  StartWorker("restarted", 2);  // back at epoch 0
  uint64_t before = Epoch();
  for (int i = 0; i < 30; ++i) {
    const HttpReply reply = Send("PUT", "/v1/settings", absl::StrCat("{\"canary_rate\": ", 0.01 * (i + 1), "}"));
    ASSERT_EQ(reply.status, 200) << reply.body;
  }
  EXPECT_EQ(Epoch(), before + 30);
  EXPECT_TRUE(Synced("a")) << "not held up by the one that does not read";
  EXPECT_TRUE(Synced("restarted"));
  EXPECT_EQ(State("stalled"), "STALE");
  StartWorker("late");
  EXPECT_TRUE(Synced("late"));
  EXPECT_EQ(Striactl({"status"}).code, 1);

  stalled.Signal(SIGCONT);
  EXPECT_TRUE(Synced("stalled"));
  EXPECT_EQ(Epoch(), before + 30);
  const CommandResult status = Striactl({"status"});
  EXPECT_EQ(status.code, 0) << status.out;
  EXPECT_EQ(status.out.find('\033'), std::string::npos);
}

TEST_F(ControllerProcessTest, KilledAndStartedAgainItGoesOnWithTheNextEpoch) {
  StartWorker("w");
  ASSERT_TRUE(Synced("w"));
  EXPECT_EQ(Keys(0), "fp16") << "before the first firing";
  ASSERT_EQ(Striactl({"tau", "set", "0.03", "--reason", "because"}).code, 0);
  FireUntilSeen({0.3, 0.025, 0.001});
  ASSERT_TRUE(Eventually([&] { return Keys(0) == "int4"; }));
  ASSERT_TRUE(Synced("w"));
  const uint64_t epoch = Epoch();
  const json history = Get("/v1/history");

  controller_->Kill();
  StartController();
  ASSERT_TRUE(Eventually([&] { return !Get("/v1/status")["workers"].empty(); }));
  ASSERT_TRUE(Synced("w"));
  EXPECT_EQ(Epoch(), epoch + 1);
  EXPECT_EQ(Keys(0), "int4");
  EXPECT_EQ(Get("/v1/history"), history);
  EXPECT_EQ(Striactl({"tau", "get"}).out, "0.03\n");

  controller_->Kill();
  fs::remove(folder_ / "state.db");
  fs::remove(folder_ / "state.db-wal");
  StartController();
  ASSERT_TRUE(Eventually([&] { return Epoch() > 0; }));
  ASSERT_TRUE(Synced("w"));
  EXPECT_EQ(Epoch(), epoch + 2) << "without its file it goes on from what the worker holds";
}

TEST_F(ControllerProcessTest, LyingFramesAreRefusedAndCounted) {
  StartWorker("w");
  ASSERT_TRUE(Synced("w"));
  uint64_t number = FireUntilSeen({0.3, 0.01, 0.001});
  const double accepted = Metric("stria_controller_readings_accepted_total");
  CanaryFrame frame = Frame(number++, {0.3, 0.01, 0.001});
  frame.readings[0].kl[0] = std::numeric_limits<float>::quiet_NaN();
  frame.readings[1].kl[2] = -1;
  frame.readings[2].kl[1] = std::numeric_limits<float>::infinity();
  const std::string good = Encode(Frame(number, {0.3, 0.01, 0.001}));
  CanaryFrame other = Frame(number + 1, {0.3, 0.01, 0.001});
  other.model = "another";
  Telemetry().Send(Encode(frame));
  Telemetry().Send(good);
  Telemetry().Send(good);
  Telemetry().Send(Encode(other));
  Telemetry().Send("not a frame");
  Telemetry().Send(Encode(Frame(number + 5, {0.3, 0.01, 0.001})));
  ASSERT_TRUE(Eventually([&] { return Metric("stria_controller_frames_lost_total") == 4; }));
  EXPECT_EQ(Metric("stria_controller_readings_accepted_total"), accepted + 6);
  EXPECT_EQ(Metric("stria_controller_readings_refused_total{reason=\"not_finite\"}"), 2);
  EXPECT_EQ(Metric("stria_controller_readings_refused_total{reason=\"negative\"}"), 1);
  EXPECT_EQ(Metric("stria_controller_frames_refused_total{reason=\"duplicate\"}"), 1);
  EXPECT_EQ(Metric("stria_controller_frames_refused_total{reason=\"other_model\"}"), 1);
  EXPECT_EQ(Metric("stria_controller_frames_refused_total{reason=\"malformed\"}"), 1);
  EXPECT_EQ(Keys(1), "int4");
}

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

  controller_->Kill();
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
  ChildProcess watch({kStriactl, "--controller", absl::StrCat("http://127.0.0.1:", http_), "watch", "--from", "2", "-o", "json"},
                     folder_ / "watch");
  ASSERT_TRUE(Eventually([&] { return watch.Out().find("\"revision\":2") != std::string::npos; }));
  EXPECT_EQ(watch.Out().find("\"revision\":1"), std::string::npos);
  StartWorker("w");
  EXPECT_TRUE(Eventually([&] { return watch.Out().find("\"state\":\"SYNCED\"") != std::string::npos; }));
  EXPECT_NE(watch.Out().find("\"event\":\"tiers\""), std::string::npos);
  ASSERT_EQ(Striactl({"freeze"}).code, 0);
  EXPECT_TRUE(Eventually([&] { return watch.Out().find("\"revision\":3") != std::string::npos; }));
  controller_->Kill();
  EXPECT_EQ(watch.Wait(), 3);
}

TEST_F(ControllerProcessTest, ASecondControllerOnTheSameFileDoesNotStart) {
  ChildProcess second({kController, "--http-port", "0", "--telemetry-port", "0", "--tiers-port", "0", "--state", folder_ / "state.db"},
                      folder_ / "second");
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_NE(second.Err().find("state.db"), std::string::npos) << second.Err();
}

TEST_F(ControllerProcessTest, StopsWhenAsked) {
  controller_->Signal(SIGTERM);
  EXPECT_EQ(controller_->Wait(), 0);
}

}  // namespace
}  // namespace stria
