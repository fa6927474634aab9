// The load tool's fleet in small: nothing is lost, every change arrives, and workers that stand still delay nobody.
#include <csignal>
#include <thread>

#include "tests/integration/controller/controller_fixture.h"
#include "tests/integration/controller/fleet.h"

namespace stria {
namespace {

constexpr int kWorkers = 60;
constexpr char kLayers[] = "16";

TEST_F(ControllerProcessTest, AFleetLosesNothingAndHearsEveryChange) {
  Fleet fleet(ports_, {.workers = kWorkers, .layers = 16, .firing_every = std::chrono::milliseconds(250)});
  std::vector<std::unique_ptr<ChildProcess>> stalled;
  for (int i = 0; i < 3; ++i) {
    stalled.push_back(std::make_unique<ChildProcess>(
        std::vector<std::string>{kFakeWorker, ports_.tiers, absl::StrCat("stalled", i), "1", "0", kLayers}, folder_ / absl::StrCat("stalled", i)));
  }
  const auto synced = [&] { return Metric("stria_controller_workers{state=\"synced\"}"); };
  fleet.Run([&] { return synced() == kWorkers + 3; });
  for (const auto& worker : stalled) worker->Signal(SIGSTOP);

  // Each worker's first frame arrives once its subscription does; from then on none may be missing.
  fleet.SetFiring(true);
  fleet.Run([&] { return fleet.fired() >= 4 * kWorkers; });
  fleet.Run([&] {
    const nlohmann::json status = Get("/v1/status");
    int firing = 0;
    for (const nlohmann::json& worker : status["workers"]) firing += worker["frames"] > 0;
    return firing == kWorkers;
  });
  const double lost = Metric("stria_controller_frames_lost_total");
  for (int change = 0; change < 4; ++change) {
    const uint64_t before = Epoch();
    ASSERT_EQ(Send("PUT", "/v1/settings", change % 2 == 0 ? "{\"tau\": 0.004}" : "{\"tau\": 0.022}").status, 200);
    const uint64_t epoch = Epoch();
    EXPECT_EQ(epoch, before + 1) << "the readings stay far from both thresholds";
    fleet.Run([&] { return fleet.Applied(epoch) == kWorkers; });
    EXPECT_EQ(Keys(15), change % 2 == 0 ? "int8" : "int4");
  }
  const uint64_t fired = fleet.fired();
  fleet.Run([&] { return fleet.fired() >= fired + 4 * kWorkers; });
  fleet.SetFiring(false);
  fleet.Run([&] { return synced() == kWorkers; });
  EXPECT_EQ(Metric("stria_controller_frames_lost_total"), lost);
  EXPECT_EQ(Metric("stria_controller_workers{state=\"stale\"}"), 3);
  for (const auto& worker : stalled) worker->Signal(SIGCONT);
  fleet.Run([&] { return synced() == kWorkers + 3; });
}

}  // namespace
}  // namespace stria
