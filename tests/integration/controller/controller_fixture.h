// Tests that run the real controller and striactl as processes, with workers that speak the protocol.
#pragma once

#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "proto/codec.h"
#include "services/common/bus.h"
#include "services/common/http_client.h"
#include "tests/integration/controller/child_process.h"
#include "tests/integration/controller/running_controller.h"

namespace stria {

inline constexpr char kController[] = "services/controller/controller";
inline constexpr char kStriactl[] = "services/ctl/striactl";
inline constexpr char kFakeWorker[] = "tests/integration/controller/fake_worker";

struct CommandResult {
  int code;
  std::string out, err;
};

class ControllerProcessTest : public testing::Test {
 protected:
  ControllerProcessTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / absl::StrCat(info->name(), "-", getpid());
    std::filesystem::create_directories(folder_);
    StartController();
  }
  ~ControllerProcessTest() override {
    workers_.clear();
    controller_.reset();
    std::filesystem::remove_all(folder_);
  }

  // The same state file every time; ports from the kernel at first, kept afterwards, as a restarted service keeps its own.
  void StartController(std::vector<std::string> flags = {}) {
    flags.insert(flags.end(), {"--state", folder_ / "state.db"});
    controller_ = nullptr;  // the old one gives its ports back
    controller_ = RunningController::Start(kController, std::move(flags), ports_, folder_ / absl::StrCat("controller", ++starts_));
    ASSERT_TRUE(controller_ != nullptr) << "the controller did not come up";
    ports_ = controller_->ports();
    client_ = std::make_unique<HttpClient>("127.0.0.1", std::stoi(ports_.http), 30);
  }

  ChildProcess& StartWorker(const std::string& name, int incarnation = 1, uint64_t epoch = 0) {
    workers_[name] = nullptr;  // the former incarnation is gone first
    workers_[name] = std::make_unique<ChildProcess>(
        std::vector<std::string>{kFakeWorker, ports_.tiers, name, std::to_string(incarnation), std::to_string(epoch)},
        folder_ / absl::StrCat(name, incarnation));
    return *workers_[name];
  }

  nlohmann::json Get(const std::string& target) {
    const auto reply = client_->Get(target);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? nlohmann::json::parse(reply->body, nullptr, false) : nlohmann::json();
  }
  HttpReply Send(const char* method, const std::string& target, const std::string& body) {
    const auto reply = client_->Request(method, target, body);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.value_or(HttpReply{});
  }
  uint64_t Epoch() {
    const nlohmann::json status = Get("/v1/status");
    return status["models"].empty() ? 0 : status["models"][0]["epoch"].get<uint64_t>();
  }
  std::string State(const std::string& name) {
    const nlohmann::json status = Get("/v1/status");
    for (const nlohmann::json& worker : status["workers"]) {
      if (worker["worker"] == name) return worker["state"];
    }
    return "unknown";
  }
  double HeardSecondsAgo(const std::string& name) {
    const nlohmann::json status = Get("/v1/status");
    for (const nlohmann::json& worker : status["workers"]) {
      if (worker["worker"] == name) return worker["heard_seconds_ago"];
    }
    return 0;
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
    arguments.insert(arguments.begin(), {kStriactl, "--controller", absl::StrCat("http://127.0.0.1:", ports_.http)});
    ChildProcess child(std::move(arguments), folder_ / "striactl");
    const int code = child.Wait();
    return {code, child.Out(), child.Err()};
  }

  // A telemetry socket of a worker whose hello another process says.
  BusSocket& Telemetry() {
    if (publisher_ == nullptr) {
      auto opened = BusSocket::Connect(context_, BusSocket::Type::kPub, absl::StrCat("tcp://127.0.0.1:", ports_.telemetry));
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
    // Others may be under way still. Frames of one socket keep their order: behind them comes one that is refused for a reason of its own.
    CanaryFrame last = Frame(number, kl);
    last.worker = "nobody";
    Telemetry().Send(Encode(last));
    EXPECT_TRUE(Eventually([&] { return Metric("stria_controller_frames_refused_total{reason=\"unknown_worker\"}") > 0; }));
    return number;
  }

  std::filesystem::path folder_;
  RunningController::Ports ports_;
  int starts_ = 0;
  std::unique_ptr<RunningController> controller_;
  std::map<std::string, std::unique_ptr<ChildProcess>> workers_;
  std::unique_ptr<HttpClient> client_;
  BusContext context_;
  std::unique_ptr<BusSocket> publisher_;
};

}  // namespace stria
