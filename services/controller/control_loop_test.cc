#include "services/controller/control_loop.h"

#include <set>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "gtest/gtest.h"
#include "proto/codec.h"
#include "services/controller/status_json.h"

namespace stria {
namespace {

// A disk in memory that can be told to fail.
class FakeStore final : public StateStore {
 public:
  absl::StatusOr<ControllerState> Load() override { return ControllerState{}; }
  absl::Status AppendRevision(const Revision& revision) override {
    if (!healthy) return absl::UnavailableError("disk full");
    revisions.push_back(revision);
    return absl::OkStatus();
  }
  absl::Status CommitEpoch(const Publication& publication, const ModelState& after, double) override {
    if (!healthy) return absl::UnavailableError("disk full");
    EXPECT_EQ(after.published, publication.vector);
    epochs.insert(publication.vector.epoch);
    return absl::OkStatus();
  }
  absl::Status SaveModels(std::span<const ModelState* const> models, std::span<const LoopStep> saved, double) override {
    ++snapshots;
    if (healthy) steps.insert(steps.end(), saved.begin(), saved.end());
    return healthy ? absl::OkStatus() : absl::UnavailableError("disk full");
  }
  absl::StatusOr<std::vector<Revision>> Revisions(uint64_t, size_t) override { return revisions; }
  absl::StatusOr<Revision> FindRevision(uint64_t number) override {
    if (number == 0 || number > revisions.size()) return absl::NotFoundError("no such revision");
    return revisions[number - 1];
  }
  absl::StatusOr<std::vector<Flip>> Flips(size_t) override { return std::vector<Flip>{}; }
  absl::StatusOr<std::vector<LoopStep>> LoopSteps(size_t) override { return steps; }

  bool healthy = true;
  std::vector<Revision> revisions;
  std::set<uint64_t> epochs;
  std::vector<LoopStep> steps;
  int snapshots = 0;
};

class ControlLoopTest : public testing::Test {
 protected:
  ControlLoopTest() {
    OpenedStore opened;
    auto store = std::make_unique<FakeStore>();
    store_ = store.get();
    opened.store = std::move(store);
    loop_ = std::make_unique<ControlLoop>(std::move(opened), events_, clock_, [this](std::string_view peer, std::string_view frame) {
      if (!reachable_.contains(std::string(peer))) return false;
      const auto message = DecodeFromController(frame);
      EXPECT_TRUE(message.ok());
      if (const auto* query = std::get_if<CacheQuery>(&*message)) {
        asked_.emplace_back(peer, query->number);
        return true;
      }
      const auto* vector = &std::get<TierVector>(*message);
      EXPECT_TRUE(store_->epochs.contains(vector->epoch)) << "sent before it was on disk";
      sent_.emplace_back(peer, *vector);
      return true;
    });
  }
  void Hello(const std::string& worker, const std::string& peer, uint64_t epoch = 0) {
    TierHello hello;
    hello.worker = worker;
    hello.incarnation = 1;
    hello.model = "m";
    hello.model_name = "Model";
    hello.layers = 2;
    hello.epoch = epoch;
    reachable_.insert(peer);
    loop_->OnTiers(peer, Encode(hello));
  }
  void Fire(uint64_t number, float kl4) {
    CanaryFrame frame;
    frame.worker = "w";
    frame.incarnation = 1;
    frame.model = "m";
    frame.number = number;
    frame.readings = {{.layer = 0, .kl = {1, kl4, 0}}, {.layer = 1, .kl = {1, 1, 1}}};
    loop_->OnTelemetry(Encode(frame));
  }

  FakeClock clock_;
  boost::asio::io_context io_;
  EventHub events_{io_};
  FakeStore* store_ = nullptr;
  std::set<std::string> reachable_;
  std::vector<std::pair<std::string, TierVector>> sent_;
  std::vector<std::pair<std::string, uint64_t>> asked_;
  std::unique_ptr<ControlLoop> loop_;
};

TEST_F(ControlLoopTest, CacheReportsComeFromTheConnectionThatWasAsked) {
  std::vector<CacheReport> reports;
  loop_->set_on_cache_report([&](CacheReport report) { reports.push_back(std::move(report)); });
  EXPECT_TRUE(absl::IsNotFound(loop_->AskCache("w", {1, 0})));
  Hello("w", "peer");
  Hello("v", "other");
  ASSERT_TRUE(loop_->AskCache("w", {7, 3}).ok());
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0], (std::pair<std::string, uint64_t>("peer", 7)));
  CacheReport report;
  report.worker = "w";
  report.number = 7;
  loop_->OnTiers("other", Encode(report));
  EXPECT_TRUE(reports.empty()) << "v speaks for w";
  loop_->OnTiers("peer", Encode(report));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].number, 7u);
  reachable_.clear();
  EXPECT_TRUE(absl::IsUnavailable(loop_->AskCache("w", {8, 0})));
}

TEST_F(ControlLoopTest, WatchersOfFiringsSeeTheAveragesNowAndThen) {
  const auto watcher = events_.Watch(/*firings=*/true);
  Hello("w", "peer");
  Fire(1, 0.01);
  Fire(2, 0.01);
  clock_.Advance(ControlLoop::kSmoothedEvery);
  Fire(3, 0.01);
  std::vector<nlohmann::json> firings;
  boost::asio::co_spawn(
      io_,
      [&]() -> boost::asio::awaitable<void> {
        for (;;) {
          const std::optional<Event> event = co_await watcher->Next(Duration::zero());
          if (!event.has_value()) co_return;
          EXPECT_EQ(event->data.at("unix_seconds").is_number(), true) << event->name;
          if (event->name == "firing") firings.push_back(event->data);
        }
      },
      boost::asio::detached);
  io_.run();
  ASSERT_EQ(firings.size(), 3u);
  EXPECT_EQ(firings[0]["layers"].size(), 2u);
  EXPECT_NEAR(firings[0]["layers"][0]["ema"]["int4"].get<double>(), 0.01, 1e-6);
  EXPECT_EQ(firings[1].contains("layers"), false);
  EXPECT_EQ(firings[2].contains("layers"), true);
}

TEST_F(ControlLoopTest, ABurstOfFramesMakesOneVector) {
  Hello("w", "peer");
  Fire(1, 0.01);
  Fire(2, 0.01);
  EXPECT_TRUE(sent_.empty());
  loop_->Flush();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].first, "peer");
  EXPECT_EQ(sent_[0].second.epoch, 1u);
  EXPECT_EQ(sent_[0].second.layers[0].keys, Width::kInt4);
  EXPECT_EQ(sent_[0].second.layers[1].keys, Width::kFp16);
}

TEST_F(ControlLoopTest, WhatCannotBeStoredIsNeitherSentNorAcknowledged) {
  Hello("w", "peer");
  loop_->Flush();
  sent_.clear();
  store_->healthy = false;
  Settings after;
  after.tau = 0.5;
  EXPECT_EQ(loop_->ChangeSettings(after, {}, "me", "", false).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(loop_->brain().settings().tau, 0.022);
  Fire(1, 0.01);
  loop_->Flush();
  EXPECT_TRUE(sent_.empty());
  EXPECT_FALSE(loop_->state_status().ok());
  store_->healthy = true;
  loop_->Flush();
  EXPECT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(loop_->state_status().ok());
  EXPECT_GE(loop_->counters().state_errors, 2u);
}

TEST_F(ControlLoopTest, StepsOfTheLoopAreWrittenOnceTheDiskLets) {
  Hello("w", "peer");
  Settings after;
  after.target_kl = 0.005;
  ASSERT_TRUE(loop_->ChangeSettings(after, {}, "me", "", false).ok());
  store_->healthy = false;
  for (uint64_t number = 1; number <= 20; ++number) {
    QualityFrame frame;
    frame.worker = "w";
    frame.incarnation = 1;
    frame.model = "m";
    frame.number = number;
    frame.readings = {{512, 200, 200 * 0.02}};
    clock_.Advance(std::chrono::seconds(2));
    loop_->OnTelemetry(Encode(frame));
    loop_->Tick();
  }
  EXPECT_TRUE(store_->steps.empty());
  store_->healthy = true;
  clock_.Advance(std::chrono::seconds(2));
  loop_->Tick();
  ASSERT_GT(store_->steps.size(), 5u);
  EXPECT_NEAR(store_->steps[0].value, 0.022, 0.0025);
  EXPECT_LT(store_->steps.back().value, store_->steps[1].value);
  EXPECT_EQ(store_->revisions.size(), 1u) << "no step is a revision";
  const auto shown = TargetJson(*loop_, 2);
  ASSERT_TRUE(shown.ok());
  EXPECT_EQ((*shown)["target_kl"], 0.005);
  EXPECT_EQ((*shown)["models"][0]["measured"]["tokens"], 4000);
  EXPECT_NEAR((*shown)["models"][0]["measured"]["kl"].get<double>(), 0.02, 1e-9);
  EXPECT_LT((*shown)["models"][0]["value"].get<double>(), 0.022);
}

TEST_F(ControlLoopTest, AWorkerThatMovedIsFoundAtItsNewPeer) {
  Hello("w", "old");
  loop_->Flush();
  reachable_.erase("old");
  Hello("w", "new");
  clock_.Advance(Controller::kResend);
  loop_->Flush();
  EXPECT_EQ(sent_.back().first, "new");
}

TEST_F(ControlLoopTest, OneUnreachableWorkerDelaysNobody) {
  Hello("a", "peer-a");
  Hello("b", "peer-b");
  reachable_.erase("peer-a");
  loop_->Flush();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0].first, "peer-b");
  EXPECT_EQ(loop_->counters().undelivered, 1u);
}

TEST_F(ControlLoopTest, GarbageIsCounted) {
  loop_->OnTelemetry("garbage");
  loop_->OnTelemetry("");
  loop_->OnTiers("peer", std::string(1000, '\xff'));
  Hello("w", "peer");
  loop_->OnTelemetry(Encode(TierAck{.worker = "w", .incarnation = 1, .epoch = 9}));
  EXPECT_EQ(loop_->counters().malformed_telemetry, 3u);
  EXPECT_EQ(loop_->counters().malformed_tiers, 1u);
}

TEST_F(ControlLoopTest, EvidenceGoesToDiskAtMostOnceASecond) {
  Hello("w", "peer");
  for (uint64_t i = 1; i <= 50; ++i) {
    Fire(i, 0.01);
    loop_->Tick();
    clock_.Advance(std::chrono::milliseconds(100));
  }
  EXPECT_GE(store_->snapshots, 4);
  EXPECT_LE(store_->snapshots, 6);
}

TEST_F(ControlLoopTest, DryRunAndNoChangeLeaveNoTrace) {
  Settings after;
  after.tau = 0.5;
  const auto dry = loop_->ChangeSettings(after, {}, "me", "", true);
  ASSERT_TRUE(dry.ok());
  EXPECT_EQ(dry->number, 1u);
  EXPECT_EQ(loop_->ChangeSettings(Settings{}, {}, "me", "", false)->number, 0u);
  EXPECT_TRUE(store_->revisions.empty());
  EXPECT_EQ(loop_->brain().revision(), 0u);
}

TEST_F(ControlLoopTest, APlanSaysWhichLayersWouldChangeAndChangesNothing) {
  Hello("w", "peer");
  Fire(1, 0.01);
  loop_->Flush();
  const size_t sent = sent_.size();
  Settings after;
  after.tau = 0.005;  // layer 0 no longer passes at 4 bits
  const nlohmann::json plan = PlanJson(*loop_, after);
  const nlohmann::json& model = plan["models"][0];
  ASSERT_EQ(model["layers"].size(), 1u) << plan;
  EXPECT_EQ(model["layers"][0]["layer"], 0);
  EXPECT_EQ(model["layers"][0]["keys"]["from"], "int4");
  EXPECT_EQ(model["layers"][0]["keys"]["to"], "int8");
  EXPECT_EQ(model["average_bits"]["before"]["keys"], 10.0);
  EXPECT_EQ(model["average_bits"]["after"]["keys"], 12.0);
  loop_->Flush();
  EXPECT_EQ(sent_.size(), sent);
  EXPECT_EQ((*TiersJson(*loop_, ""))["layers"][0]["keys"], "int4");
  ASSERT_TRUE(loop_->ChangeSettings(after, {}, "me", "", false).ok());
  EXPECT_EQ((*TiersJson(*loop_, ""))["layers"][0]["keys"], "int8") << "as planned";
}

TEST_F(ControlLoopTest, WorkersLongSilentAreForgotten) {
  Hello("w", "peer");
  loop_->Tick();
  clock_.Advance(ControlLoop::kForgetAfter + std::chrono::seconds(1));
  loop_->Tick();
  EXPECT_TRUE(loop_->brain().registry().workers().empty());
}

TEST_F(ControlLoopTest, StatusAndTiersSayWhatIs) {
  Hello("w", "peer");
  Fire(1, 0.01);
  loop_->Flush();
  nlohmann::json status = StatusJson(*loop_);
  EXPECT_EQ(status["workers"][0]["state"], "NEVER");
  EXPECT_EQ(status["workers"][0]["epoch_sent"], 1);
  EXPECT_EQ(status["models"][0]["average_bits"]["keys"], 10.0);  // (4 + 16) / 2
  loop_->OnTiers("peer", Encode(TierAck{.worker = "w", .incarnation = 1, .epoch = 1}));
  EXPECT_EQ(StatusJson(*loop_)["workers"][0]["state"], "SYNCED");
  clock_.Advance(std::chrono::seconds(11));
  EXPECT_EQ(StatusJson(*loop_)["workers"][0]["state"], "STALE");
  const nlohmann::json layer = (*TiersJson(*loop_, "Model"))["layers"][0];
  EXPECT_EQ(layer["keys"], "int4");
  EXPECT_FLOAT_EQ(layer["ema"]["int4"].get<float>(), 0.01f);
  EXPECT_TRUE(layer["ema_latent"].is_null());
  EXPECT_EQ(TiersJson(*loop_, "other").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ControlLoopTest, TiersAreOfOneModel) {
  EXPECT_TRUE((*TiersJson(*loop_, ""))["model"].is_null());
  Hello("w", "peer");
  EXPECT_EQ((*TiersJson(*loop_, ""))["model"], "m");
  TierHello hello;
  hello.worker = "v";
  hello.model = "n";
  hello.model_name = "Model";
  hello.layers = 1;
  loop_->OnTiers("peer-v", Encode(hello));
  EXPECT_EQ(TiersJson(*loop_, "").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(TiersJson(*loop_, "Model").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ((*TiersJson(*loop_, "n"))["layers"].size(), 1u);
}

TEST_F(ControlLoopTest, WatchersAreToldAndASlowOneLosesNothingUnsaid) {
  auto watcher = events_.Watch(/*firings=*/true), other = events_.Watch(/*firings=*/false);
  Hello("w", "peer");
  for (uint64_t i = 1; i <= 2000; ++i) Fire(i, 0.01);
  EXPECT_EQ(watcher->TakeLost(), 2000u - 1024u);
  EXPECT_EQ(other->TakeLost(), 0u) << "it did not ask for firings";
  EXPECT_TRUE(events_.firings_watched());
  watcher.reset();
  EXPECT_FALSE(events_.firings_watched());
  EXPECT_TRUE(events_.watched());
  other.reset();
  EXPECT_FALSE(events_.watched());
}

}  // namespace
}  // namespace stria
