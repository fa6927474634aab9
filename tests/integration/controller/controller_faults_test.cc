// Workers that are late, stalled, restarted or lying, and a controller that dies, as real processes.
#include <csignal>
#include <filesystem>
#include <limits>

#include "tests/integration/controller/controller_fixture.h"

namespace stria {
namespace {

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

  // Longer than any patience involved: heartbeats are missed after 3 s, resends come every 8 s at least, 10 s are a silence.
  ASSERT_TRUE(Eventually([&] { return HeardSecondsAgo("stalled") > 12; }));
  EXPECT_EQ(State("a"), "SYNCED");
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
  const nlohmann::json history = Get("/v1/history");

  controller_->process().Kill();
  StartController();
  ASSERT_TRUE(Eventually([&] { return !Get("/v1/status")["workers"].empty(); }));
  ASSERT_TRUE(Synced("w"));
  EXPECT_EQ(Epoch(), epoch + 1);
  EXPECT_EQ(Keys(0), "int4");
  EXPECT_EQ(Get("/v1/history"), history);
  EXPECT_EQ(Striactl({"tau", "get"}).out, "0.03\n");

  controller_->process().Kill();
  std::filesystem::remove(folder_ / "state.db");
  std::filesystem::remove(folder_ / "state.db-wal");
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

TEST_F(ControllerProcessTest, ReorderedAndReplayedFramesMoveNothing) {
  StartWorker("w");
  ASSERT_TRUE(Synced("w"));
  uint64_t number = FireUntilSeen({0.3, 0.01, 0.001});
  const auto numbered = [&](uint64_t n) { return Encode(Frame(n, {0.3, 0.01, 0.001})); };
  const double accepted = Metric("stria_controller_frames_accepted_total"), lost = Metric("stria_controller_frames_lost_total");
  // 2 overtakes 0 and 1, which then come late; all three are played again; so is one from long ago, and one from an impossible future.
  for (const uint64_t n : {number + 2, number, number + 1, number + 2, number, number + 1}) Telemetry().Send(numbered(n));
  Telemetry().Send(numbered(number + 80));
  Telemetry().Send(numbered(number + 3));
  Telemetry().Send(numbered(uint64_t{1} << 60));
  Telemetry().Send(numbered(0));
  CanaryFrame former = Frame(number + 81, {0.3, 0.01, 0.001});
  former.incarnation = 7;
  Telemetry().Send(Encode(former));
  Telemetry().Send(numbered(number + 81));
  ASSERT_TRUE(Eventually([&] { return Metric("stria_controller_frames_accepted_total") == accepted + 3; }));
  EXPECT_EQ(Metric("stria_controller_frames_refused_total{reason=\"out_of_order\"}"), 3);
  EXPECT_EQ(Metric("stria_controller_frames_refused_total{reason=\"duplicate\"}"), 3);
  EXPECT_EQ(Metric("stria_controller_frames_refused_total{reason=\"bad_number\"}"), 1);
  EXPECT_EQ(Metric("stria_controller_frames_refused_total{reason=\"malformed\"}"), 1) << "numbers begin at 1";
  EXPECT_EQ(Metric("stria_controller_frames_refused_total{reason=\"other_incarnation\"}"), 1);
  EXPECT_EQ(Metric("stria_controller_frames_lost_total"), lost + 2 + 77);
  EXPECT_EQ(Keys(0), "int4");
}

TEST_F(ControllerProcessTest, ARestartedWorkersOldFramesAreNotIts) {
  StartWorker("w");
  ASSERT_TRUE(Synced("w"));
  const uint64_t number = FireUntilSeen({0.3, 0.01, 0.001});
  StartWorker("w", 2);
  ASSERT_TRUE(Eventually([&] {
    const nlohmann::json status = Get("/v1/status");
    return status["workers"][0]["incarnation"] == 2 && status["workers"][0]["state"] == "SYNCED";
  }));
  const double accepted = Metric("stria_controller_frames_accepted_total");
  Telemetry().Send(Encode(Frame(number, {9, 9, 9})));  // of the first incarnation
  CanaryFrame fresh = Frame(1, {0.3, 0.01, 0.001});
  fresh.incarnation = 2;
  Telemetry().Send(Encode(fresh));
  ASSERT_TRUE(Eventually([&] { return Metric("stria_controller_frames_accepted_total") == accepted + 1; })) << "its numbers start again";
  EXPECT_EQ(Metric("stria_controller_frames_refused_total{reason=\"other_incarnation\"}"), 1);
  EXPECT_EQ(Keys(0), "int4");
}

}  // namespace
}  // namespace stria
