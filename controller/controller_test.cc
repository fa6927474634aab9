#include "controller/controller.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace stria {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The brain with a clock and a disk that never fails, driven as the process drives it.
class ControllerTest : public testing::Test {
 protected:
  TierHello Hello(std::string worker, uint64_t epoch = 0, uint64_t incarnation = 1) {
    return {.worker = std::move(worker), .incarnation = incarnation, .model = "m", .model_name = "M", .layers = 2,
            .epoch = epoch, .http = ""};
  }
  // All layers read the same.
  CanaryFrame Frame(std::array<float, 3> kl, std::string worker = "w") {
    CanaryFrame frame;
    frame.worker = worker;
    frame.incarnation = 1;
    frame.model = "m";
    frame.number = ++numbers_[worker];
    frame.epoch = epoch();
    for (uint32_t l = 0; l < 2; ++l) frame.readings.push_back({.layer = l, .kl = kl});
    return frame;
  }
  FrameVerdict Fire(std::array<float, 3> kl) {
    clock_.Advance(milliseconds(100));
    return brain_->OnFrame(Frame(kl), clock_.Now()).verdict;
  }
  void Join(std::string worker = "w") {
    ASSERT_TRUE(brain_->OnHello(Hello(std::move(worker)), clock_.Now()).ok());
    Publish();
  }
  // Drafts and commits; the number of new vectors.
  size_t Publish() {
    const auto drafts = brain_->Draft(clock_.UnixSeconds());
    for (const Publication& draft : drafts) {
      for (const Flip& flip : draft.flips) flips_.push_back(flip);
      brain_->Commit(draft, clock_.Now());
    }
    return drafts.size();
  }
  void Set(std::string_view name, double value) {
    Settings after = brain_->settings();
    ASSERT_TRUE(SetSetting(after, name, value).ok());
    Change(after);
  }
  void Change(const Settings& after) {
    const auto revision = brain_->ProposeRevision(after, {}, "me", "test", clock_.UnixSeconds());
    ASSERT_TRUE(revision.ok());
    brain_->Adopt(*revision, clock_.Now());
  }
  const ModelState& model() { return brain_->models().at("m"); }
  uint64_t epoch() { return brain_->models().contains("m") ? model().published.epoch : 0; }
  Width keys(uint32_t layer = 0) { return model().published.layers[layer].keys; }
  std::vector<std::string> Due() {
    std::vector<std::string> names;
    for (const Delivery& delivery : brain_->TakeDue(clock_.Now())) names.push_back(delivery.worker);
    return names;
  }
  uint64_t Refused(FrameVerdict verdict) { return brain_->counters().frames[static_cast<size_t>(verdict)]; }
  uint64_t Readings(ReadingVerdict verdict) { return brain_->counters().readings[static_cast<size_t>(verdict)]; }

  // What a restart keeps.
  ControllerState Saved() {
    ControllerState state{brain_->settings(), brain_->revision(), brain_->max_epoch(), {}};
    for (const auto& [name, model] : brain_->models()) {
      state.models.push_back(model);
      ModelState& kept = state.models.back();
      kept.active = kept.reissue = kept.unsaved = kept.fired = false;
    }
    return state;
  }
  void Restart(ControllerState state) { brain_ = std::make_unique<Controller>(std::move(state), MakeThresholdPolicy()); }

  FakeClock clock_;
  std::unique_ptr<Controller> brain_ = std::make_unique<Controller>(ControllerState{}, MakeThresholdPolicy());
  std::map<std::string, uint64_t> numbers_;
  std::vector<Flip> flips_;
};

TEST_F(ControllerTest, EveryLayerIsFp16UntilTheFirstFiring) {
  Join();
  EXPECT_EQ(epoch(), 1u);
  EXPECT_EQ(model().published.layers, std::vector<LayerTier>(2));
  EXPECT_EQ(model().published.canary_rate, 1.0 / 64);
  EXPECT_EQ(model().published.reference_length, 4096u);
  clock_.Advance(std::chrono::hours(5));
  EXPECT_EQ(Publish(), 0u);
  EXPECT_EQ(Fire({0.3, 0.01, 0.001}), FrameVerdict::kAccepted);
  EXPECT_EQ(Publish(), 1u);
  EXPECT_EQ(epoch(), 2u);
  EXPECT_EQ(keys(), Width::kInt4);
  EXPECT_EQ(model().flips[0], 0u) << "a start is no flip";
  ASSERT_EQ(flips_.size(), 2u);
  EXPECT_TRUE(flips_[0].first);
}

TEST_F(ControllerTest, FlipsCountPerLayer) {
  Join();
  Set("alpha", 1);
  Fire({0.3, 0.01, 0.001});
  Publish();
  CanaryFrame frame = Frame({0.3, 0.01, 0.001});
  frame.readings[1].kl = {0.3, 0.05, 0.001};
  brain_->OnFrame(frame, clock_.Now());
  Publish();
  EXPECT_EQ(keys(0), Width::kInt4);
  EXPECT_EQ(keys(1), Width::kInt8);
  EXPECT_EQ(model().flips, (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(brain_->counters().flips, 1u);
}

TEST_F(ControllerTest, ANewEpochOnlyWhenSomethingChanged) {
  Join();
  Fire({0.3, 0.01, 0.001});
  EXPECT_EQ(Publish(), 1u);
  for (int i = 0; i < 20; ++i) {
    Fire({0.3, 0.01, 0.001});
    EXPECT_EQ(Publish(), 0u);
  }
  EXPECT_EQ(epoch(), 2u);
}

TEST_F(ControllerTest, SilenceAndTimeNeverNarrow) {
  Join();
  Set("alpha", 1);
  Publish();
  Fire({1, 1, 0.001});
  Publish();
  ASSERT_EQ(keys(), Width::kInt8);
  Fire({1, 0.001, 0.001});  // safe twice; k is 3
  Fire({1, 0.001, 0.001});
  clock_.Advance(std::chrono::hours(10));
  Publish();
  EXPECT_EQ(keys(), Width::kInt8);
  Set("tau", 50);
  Publish();
  EXPECT_EQ(keys(), Width::kInt8) << "not on readings that old";
  Set("tau", 0.0001);
  Publish();
  EXPECT_EQ(keys(), Width::kFp16) << "widening needs no fresh proof";
}

TEST_F(ControllerTest, TauActsAtOnceOnALiveModel) {
  Join();
  Fire({0.3, 0.03, 0.001});
  Publish();
  ASSERT_EQ(keys(), Width::kInt8);
  Set("tau", 0.05);
  Publish();
  EXPECT_EQ(keys(), Width::kInt4);
}

TEST_F(ControllerTest, AWallClockThatJumpsChangesNothing) {
  Join();
  Set("alpha", 1);
  Fire({1, 1, 0.001});
  Publish();
  clock_.JumpWallClock(-1e6);
  Fire({1, 0.001, 0.001});
  clock_.JumpWallClock(+2e6);
  Fire({1, 0.001, 0.001});
  Publish();
  EXPECT_EQ(keys(), Width::kInt8);
  Fire({1, 0.001, 0.001});
  const uint64_t before = epoch();
  Publish();
  EXPECT_EQ(keys(), Width::kInt4) << "exactly k firings";
  EXPECT_EQ(epoch(), before + 1);
}

TEST_F(ControllerTest, FreezeHoldsAndThawGoesOn) {
  Join();
  Set("alpha", 1);
  Fire({1, 0.01, 0.001});
  Publish();
  Set("frozen", 1);
  EXPECT_EQ(Publish(), 1u);
  EXPECT_TRUE(model().published.frozen);
  EXPECT_EQ(Fire({9, 9, 9}), FrameVerdict::kFrozen) << "on its way when the freeze came";
  EXPECT_EQ(Publish(), 0u);
  Set("tau", 1e-6);
  EXPECT_EQ(Publish(), 0u);
  EXPECT_EQ(keys(), Width::kInt4);
  Set("frozen", 0);
  Publish();
  EXPECT_FALSE(model().published.frozen);
  EXPECT_EQ(keys(), Width::kFp16) << "the smaller tau counts from the thaw";
}

TEST_F(ControllerTest, BadReadingsAreSkippedOneByOne) {
  Join();
  CanaryFrame frame = Frame({0.3, 0.01, 0.001});
  frame.readings[0].kl[1] = kNan;
  frame.readings.push_back({.layer = 7, .kl = {}});
  frame.readings.push_back(frame.readings[1]);
  EXPECT_EQ(brain_->OnFrame(frame, clock_.Now()).verdict, FrameVerdict::kAccepted);
  Publish();
  EXPECT_EQ(keys(0), Width::kFp16);
  EXPECT_EQ(keys(1), Width::kInt4);
  EXPECT_EQ(Readings(ReadingVerdict::kNotFinite), 1u);
  EXPECT_EQ(Readings(ReadingVerdict::kBadLayer), 1u);
  EXPECT_EQ(Readings(ReadingVerdict::kRepeated), 1u);
  EXPECT_EQ(Readings(ReadingVerdict::kAccepted), 1u);
  Fire({0.3, -0.01, 0.001});
  Fire({std::numeric_limits<float>::infinity(), 0.01, 0.001});
  EXPECT_EQ(Readings(ReadingVerdict::kNegative), 2u);
  EXPECT_EQ(Readings(ReadingVerdict::kNotFinite), 3u);
  EXPECT_EQ(model().firings, 1u);
  EXPECT_EQ(Publish(), 0u);
}

TEST_F(ControllerTest, LyingWorkersAreRefusedAndCounted) {
  Join();
  CanaryFrame frame = Frame({9, 9, 9});
  frame.model = "other";
  brain_->OnFrame(frame, clock_.Now());
  frame = Frame({9, 9, 9}, "stranger");
  brain_->OnFrame(frame, clock_.Now());
  frame = Frame({0.3, 0.01, 0.001});
  brain_->OnFrame(frame, clock_.Now());
  const auto before = model().ranks;
  for (LayerReading& reading : frame.readings) reading.kl = {9, 9, 9};
  brain_->OnFrame(frame, clock_.Now());  // replayed
  EXPECT_EQ(model().ranks, before);
  EXPECT_EQ(Refused(FrameVerdict::kOtherModel), 1u);
  EXPECT_EQ(Refused(FrameVerdict::kUnknownWorker), 1u);
  EXPECT_EQ(Refused(FrameVerdict::kDuplicate), 1u);
}

TEST_F(ControllerTest, AReadingUnderAnOlderEpochIsFine) {
  Join();
  Fire({0.3, 0.01, 0.001});
  Publish();
  CanaryFrame frame = Frame({0.3, 0.01, 0.001});
  frame.epoch = 0;
  EXPECT_EQ(brain_->OnFrame(frame, clock_.Now()).verdict, FrameVerdict::kAccepted);
}

TEST_F(ControllerTest, TheNextEpochIsOneMoreThanAnyHeard) {
  ASSERT_TRUE(brain_->OnHello(Hello("w", 41), clock_.Now()).ok());
  Publish();
  EXPECT_EQ(epoch(), 42u);
  ASSERT_TRUE(brain_->OnHello(Hello("v", 100), clock_.Now()).ok());
  EXPECT_EQ(Publish(), 1u) << "v would take 42 for old";
  EXPECT_EQ(epoch(), 101u);
}

TEST_F(ControllerTest, ARestartKeepsStateAndGoesOnWithTheNextEpoch) {
  Join();
  Set("tau", 0.03);
  Fire({0.3, 0.025, 0.001});
  Publish();
  ASSERT_EQ(keys(), Width::kInt4);
  const uint64_t before = epoch();
  const auto evidence = model().ranks;
  Restart(Saved());
  EXPECT_EQ(Publish(), 0u) << "nobody is there to tell";
  ASSERT_TRUE(brain_->OnHello(Hello("w", before), clock_.Now()).ok());
  EXPECT_EQ(Publish(), 1u);
  EXPECT_EQ(epoch(), before + 1);
  EXPECT_EQ(keys(), Width::kInt4);
  EXPECT_EQ(model().ranks, evidence);
  EXPECT_EQ(brain_->settings().tau, 0.03);
  EXPECT_EQ(brain_->revision(), 1u);
  EXPECT_EQ(Publish(), 0u);
}

TEST_F(ControllerTest, AnEmptyStateGoesOnFromWhatWorkersHold) {
  Join();
  Fire({0.3, 0.01, 0.001});
  Publish();
  Restart(ControllerState{});
  ASSERT_TRUE(brain_->OnHello(Hello("w", 2), clock_.Now()).ok());
  Publish();
  EXPECT_EQ(epoch(), 3u);
  EXPECT_EQ(keys(), Width::kFp16) << "nothing is known any more";
}

TEST_F(ControllerTest, ResendsUntilAcknowledged) {
  Join();
  EXPECT_EQ(Due(), std::vector<std::string>{"w"});
  EXPECT_TRUE(Due().empty());
  clock_.Advance(milliseconds(499));
  EXPECT_TRUE(Due().empty());
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(Due().size(), 1u);
  clock_.Advance(milliseconds(999));
  EXPECT_TRUE(Due().empty()) << "the second wait is twice as long";
  clock_.Advance(milliseconds(1));
  EXPECT_EQ(Due().size(), 1u);
  brain_->OnAck({.worker = "w", .incarnation = 1, .epoch = 1}, clock_.Now());
  clock_.Advance(seconds(100));
  EXPECT_TRUE(Due().empty());
}

TEST_F(ControllerTest, AWorkerThatWakesUpIsServedAtOnce) {
  Join();
  int sends = 0;
  for (int i = 0; i < 6000; ++i) {  // ten minutes stopped
    sends += static_cast<int>(Due().size());
    clock_.Advance(milliseconds(100));
  }
  EXPECT_LT(sends, 85) << "at most one each eight seconds in the long run";
  brain_->TakeDue(clock_.Now());
  clock_.Advance(seconds(1));
  ASSERT_TRUE(Due().empty());
  ASSERT_TRUE(brain_->OnHello(Hello("w", 0), clock_.Now()).ok());
  EXPECT_EQ(Due().size(), 1u);
}

TEST_F(ControllerTest, AStalledWorkerDelaysNobodyAndARestartedOneCatchesUp) {
  Join("a");
  Join("b");
  EXPECT_EQ(Due(), (std::vector<std::string>{"a", "b"}));
  brain_->OnAck({.worker = "a", .incarnation = 1, .epoch = 1}, clock_.Now());
  Set("tau", 0.05);
  Set("canary_rate", 0.5);
  Publish();
  EXPECT_EQ(Due(), (std::vector<std::string>{"a", "b"})) << "a new vector waits for nobody's acknowledgement";
  brain_->OnAck({.worker = "a", .incarnation = 1, .epoch = epoch()}, clock_.Now());
  const auto& workers = brain_->registry().workers();
  EXPECT_EQ(brain_->Sync(workers.at("a"), clock_.Now()), SyncState::kSynced);
  EXPECT_EQ(brain_->Sync(workers.at("b"), clock_.Now()), SyncState::kNever);
  ASSERT_TRUE(brain_->OnHello(Hello("b", 0, 2), clock_.Now()).ok());
  EXPECT_EQ(Due(), std::vector<std::string>{"b"});
  brain_->OnAck({.worker = "b", .incarnation = 1, .epoch = epoch()}, clock_.Now());
  EXPECT_EQ(brain_->Sync(workers.at("b"), clock_.Now()), SyncState::kNever) << "that was its former life";
  brain_->OnAck({.worker = "b", .incarnation = 2, .epoch = epoch()}, clock_.Now());
  EXPECT_EQ(brain_->Sync(workers.at("b"), clock_.Now()), SyncState::kSynced);
  clock_.Advance(seconds(11));
  EXPECT_EQ(brain_->Sync(workers.at("b"), clock_.Now()), SyncState::kStale) << "not heard of";
}

TEST_F(ControllerTest, CompareAndSwapOnTheRevision) {
  Settings after;
  after.tau = 0.03;
  EXPECT_EQ(brain_->ProposeRevision(after, 1, "me", "", 0).status().code(), absl::StatusCode::kAborted);
  const auto revision = brain_->ProposeRevision(after, 0, "me", "more room", 5);
  ASSERT_TRUE(revision.ok());
  EXPECT_EQ(revision->number, 1u);
  EXPECT_EQ(revision->before.tau, 0.022);
  EXPECT_EQ(brain_->settings().tau, 0.022) << "a proposal changes nothing";
  brain_->Adopt(*revision, clock_.Now());
  EXPECT_EQ(brain_->settings().tau, 0.03);
  EXPECT_EQ(brain_->ProposeRevision(after, 0, "you", "", 0).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(brain_->ProposeRevision(after, 1, "you", "", 0)->number, 1u) << "no change, no revision";
}

// L0 from 4096 to 1024 halves every reading (each is divided by √(L/L0)), so averages follow and late frames are refused.
TEST_F(ControllerTest, AnotherReferenceLengthRescalesTheAverages) {
  Join();
  Fire({0.3, 0.03, 0.002});
  Publish();
  ASSERT_EQ(keys(), Width::kInt8);
  CanaryFrame late = Frame({0.3, 0.03, 0.002});
  Set("reference_length", 1024);
  EXPECT_EQ(brain_->OnFrame(late, clock_.Now()).verdict, FrameVerdict::kOldUnit);
  Publish();
  EXPECT_FLOAT_EQ(MeanReadings(model(), 0, CacheKind::kPlain)[1], 0.015);
  EXPECT_EQ(keys(), Width::kInt4);
  EXPECT_EQ(Fire({0.15, 0.015, 0.001}), FrameVerdict::kAccepted);
}

TEST_F(ControllerTest, RanksVotePerLayer) {
  for (uint32_t rank = 0; rank < 3; ++rank) {
    TierHello hello = Hello("r" + std::to_string(rank));
    hello.rank = rank;
    hello.ranks = 3;
    ASSERT_TRUE(brain_->OnHello(hello, clock_.Now()).ok());
  }
  Publish();
  const std::array<std::array<float, 3>, 3> readings = {{{0.01, 0, 0}, {0.3, 0.01, 0}, {0.3, 0.01, 0}}};
  for (uint32_t rank = 0; rank < 3; ++rank) {
    CanaryFrame frame = Frame(readings[rank], "r" + std::to_string(rank));
    frame.rank = rank;
    frame.ranks = 3;
    EXPECT_EQ(brain_->OnFrame(frame, clock_.Now()).verdict, FrameVerdict::kAccepted);
    Publish();
    EXPECT_EQ(keys(), rank == 2 ? Width::kInt4 : Width::kFp16) << "ranks that have not fired vote FP16";
  }
}

TEST_F(ControllerTest, PinsAndBoundsGoOverThePolicy) {
  Join();
  Fire({0.3, 0.01, 0.001});
  Publish();
  ASSERT_EQ(keys(0), Width::kInt4);
  Settings after = brain_->settings();
  after.keys.narrowest = Width::kInt8;
  after.pins[1] = {.keys = {Width::kInt2, Width::kInt2}, .values = {Width::kFp16, Width::kFp16}};
  Change(after);
  EXPECT_EQ(Publish(), 1u);
  EXPECT_EQ(keys(0), Width::kInt8);
  EXPECT_EQ(model().published.layers[0].values, Width::kInt4);
  EXPECT_EQ(keys(1), Width::kInt2);
  EXPECT_EQ(model().published.layers[1].values, Width::kFp16);
  after = Settings{};
  Change(after);
  Publish();
  EXPECT_EQ(keys(0), Width::kInt4) << "the policy went on below";
  EXPECT_EQ(keys(1), Width::kInt4);
  after.values = {Width::kInt8, Width::kInt2};
  EXPECT_EQ(brain_->ProposeRevision(after, {}, "", "", 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ControllerTest, RecommendOnlyComputesAndHoldsTheVector) {
  Set("recommend_only", 1);
  Join();
  Fire({0.3, 0.01, 0.001});
  EXPECT_EQ(Publish(), 0u);
  EXPECT_EQ(keys(), Width::kFp16);
  EXPECT_EQ(RecommendedTiers(model(), brain_->settings())[0].keys, Width::kInt4);
  Set("canary_rate", 0.5);
  EXPECT_EQ(Publish(), 1u) << "what is no width still follows the settings";
  EXPECT_EQ(keys(), Width::kFp16);
  Set("recommend_only", 0);
  EXPECT_EQ(Publish(), 1u);
  EXPECT_EQ(keys(), Width::kInt4);
}

TEST_F(ControllerTest, WarmUpThenHeldUntilTheSettingsChange) {
  Join();
  Set("freeze_after", 3);
  EXPECT_EQ(PhaseOf(model(), brain_->settings()), Phase::kWarmup);
  Fire({0.3, 0.01, 0.001});
  Fire({0.3, 0.01, 0.001});
  Publish();
  EXPECT_FALSE(model().published.frozen);
  Fire({0.3, 0.01, 0.001});
  EXPECT_EQ(Publish(), 1u);
  EXPECT_EQ(PhaseOf(model(), brain_->settings()), Phase::kHeld);
  EXPECT_TRUE(model().published.frozen);
  EXPECT_EQ(keys(), Width::kInt4);
  EXPECT_EQ(Fire({9, 9, 9}), FrameVerdict::kFrozen);
  EXPECT_EQ(Publish(), 0u);
  const ControllerState saved = Saved();
  Restart(saved);
  ASSERT_TRUE(brain_->OnHello(Hello("w", 9), clock_.Now()).ok());
  Publish();
  EXPECT_TRUE(model().published.frozen) << "over a restart too";
  Set("freeze_after", 5);
  Publish();
  EXPECT_FALSE(model().published.frozen) << "a new warm-up";
  EXPECT_EQ(Fire({9, 9, 9}), FrameVerdict::kAccepted);
  Set("freeze_after", 0);
  EXPECT_EQ(PhaseOf(model(), brain_->settings()), Phase::kLive);
}

TEST_F(ControllerTest, PooledWorkersMakeOneRoundASecond) {
  Set("pooled", 1);
  Set("alpha", 1);
  Join("a");
  Join("b");
  brain_->OnFrame(Frame({0.3, 0.01, 0.001}, "a"), clock_.Now());
  EXPECT_EQ(model().firings, 1u);
  for (int i = 0; i < 9; ++i) {
    clock_.Advance(milliseconds(100));
    brain_->OnFrame(Frame({0.3, 0.01, 0.001}, "a"), clock_.Now());
    brain_->OnFrame(Frame({0.3, 0.03, 0.001}, "b"), clock_.Now());
  }
  EXPECT_EQ(model().firings, 1u);
  clock_.Advance(milliseconds(100));
  brain_->OnFrame(Frame({0.3, 0.03, 0.001}, "b"), clock_.Now());
  EXPECT_EQ(model().firings, 2u);
  EXPECT_FLOAT_EQ(MeanReadings(model(), 0, CacheKind::kPlain)[1], 0.02);
  Publish();
  ASSERT_TRUE(brain_->OnHello(Hello("new"), clock_.Now()).ok());
  const std::vector<Delivery> due = brain_->TakeDue(clock_.Now());
  ASSERT_EQ(due.size(), 3u);
  EXPECT_EQ(due[2].vector->layers[0].keys, Width::kInt4) << "a new worker starts from the fleet's vector";
}

TEST_F(ControllerTest, ACalibrationStartsTheAverages) {
  Calibration calibration{.model = "m", .layers = {}};
  for (int l = 0; l < 2; ++l) calibration.layers.push_back({.keys = {}, .values = {}, .canary = {0.3, 0.01, 0.001}});
  Calibration of_another = calibration;
  of_another.model = "n";
  brain_ = std::make_unique<Controller>(ControllerState{}, MakeTierPolicy(), std::vector{of_another, calibration});
  Join();
  EXPECT_EQ(keys(), Width::kFp16) << "until the first firing, still";
  Fire({0.6, 0.05, 0.002});
  Publish();
  EXPECT_EQ(keys(), Width::kInt4);
  EXPECT_FLOAT_EQ(MeanReadings(model(), 0, CacheKind::kPlain)[1], 0.01 + 0.04 * 0.04);
}

TEST_F(ControllerTest, TheBudgetPolicyWantsACalibration) {
  Join();
  Settings after = brain_->settings();
  after.policy = PolicyKind::kBudget;
  const absl::Status status = brain_->ProposeRevision(after, {}, "", "", 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("M"), status.message().npos);
}

TEST_F(ControllerTest, AnotherShapeIsRefusedWhileTheFirstLives) {
  Join("a");
  TierHello hello = Hello("b");
  hello.ranks = 2;
  EXPECT_EQ(brain_->OnHello(hello, clock_.Now()).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(brain_->registry().workers().size(), 1u);
  clock_.Advance(seconds(11));
  EXPECT_TRUE(brain_->OnHello(hello, clock_.Now()).ok()) << "a is gone";
  EXPECT_EQ(model().ranks.size(), 2u);
  EXPECT_EQ(brain_->OnFrame(Frame({0, 0, 0}, "a"), clock_.Now()).verdict, FrameVerdict::kOtherShape);
}

TEST_F(ControllerTest, ModelsKeepApart) {
  Join();
  Fire({0.3, 0.01, 0.001});
  Publish();
  TierHello hello = Hello("v");
  hello.model = "n";
  hello.layers = 5;
  ASSERT_TRUE(brain_->OnHello(hello, clock_.Now()).ok());
  EXPECT_EQ(Publish(), 1u);
  EXPECT_EQ(brain_->models().at("n").published.layers, std::vector<LayerTier>(5));
  EXPECT_EQ(brain_->models().at("n").published.epoch, 3u) << "an epoch names one vector";
  EXPECT_EQ(epoch(), 2u);
}

TEST_F(ControllerTest, SaysOnceWhatNeedsSaving) {
  Join();
  EXPECT_TRUE(brain_->TakeUnsaved().empty());
  Fire({0.3, 0.01, 0.001});
  EXPECT_EQ(brain_->TakeUnsaved().size(), 1u);
  EXPECT_TRUE(brain_->TakeUnsaved().empty());
}

TEST_F(ControllerTest, AQualityTargetMovesTauAndNotTheRevision) {
  Join();
  Set("alpha", 1);
  const auto measure = [&](double kl, std::string worker = "w") {
    clock_.Advance(seconds(1));
    QualityFrame frame;
    static_cast<TelemetryHeader&>(frame) = Frame({0, 0, 0}, worker);
    frame.readings = {{512, 100, 60 * kl}, {1024, 100, 140 * kl}};
    return brain_->OnFrame(frame, clock_.Now());
  };
  const auto tau = [&] { return InForce(model().quality.loop, brain_->settings()).tau; };
  EXPECT_EQ(measure(0.02), FrameVerdict::kAccepted);
  EXPECT_EQ(measure(0.02, "stranger"), FrameVerdict::kUnknownWorker);
  EXPECT_EQ(model().quality.tokens, 200u);
  EXPECT_NEAR(model().quality.by_length.at(1024).mean(), 0.028, 1e-12);
  EXPECT_EQ(tau(), 0.022) << "nothing was asked for";
  EXPECT_TRUE(brain_->TakeLoopSteps(1).empty());
  Set("target_kl", 0.005);
  const uint64_t revision = brain_->revision();
  EXPECT_EQ(Publish(), 0u) << "bumpless";
  // Firings keep their reading; the threshold comes down to it.
  Fire({0.3, 0.02, 0.001});
  Publish();
  EXPECT_EQ(keys(), Width::kInt4);
  for (int i = 0; i < 12; ++i) measure(0.02), Fire({0.3, 0.02, 0.001});
  EXPECT_LT(tau(), 0.015);
  EXPECT_EQ(brain_->revision(), revision);
  EXPECT_EQ(brain_->settings().tau, 0.022);
  Publish();
  EXPECT_EQ(keys(), Width::kInt8);
  const std::vector<LoopStep> steps = brain_->TakeLoopSteps(7);
  ASSERT_GT(steps.size(), 5u);
  EXPECT_NEAR(steps[0].value, 0.022, 0.0025);
  EXPECT_EQ(steps[0].model, "m");
  EXPECT_EQ(steps[0].unix_seconds, 7);
  EXPECT_LT(steps.back().value, 0.9 * steps[0].value);
  EXPECT_TRUE(brain_->TakeLoopSteps(8).empty());

  const double found = tau();
  clock_.Advance(std::chrono::hours(5));
  EXPECT_EQ(tau(), found) << "silence moves nothing";
  Restart(Saved());
  Join();
  EXPECT_EQ(tau(), found) << "nor does a restart";
  Set("frozen", 1);
  EXPECT_EQ(measure(0.02), FrameVerdict::kAccepted);
  EXPECT_EQ(tau(), found) << "held";
  Set("frozen", 0);
  Set("recommend_only", 1);
  measure(0.02);
  EXPECT_EQ(tau(), found) << "what follows nothing is not steered";
  Set("recommend_only", 0);
  measure(0.02);
  EXPECT_LT(tau(), found);
  Set("target_kl", 0);
  EXPECT_EQ(tau(), 0.022);
}

TEST_F(ControllerTest, OneRankSpeaksForTheQuality) {
  TierHello hello = Hello("w");
  hello.ranks = 2;
  hello.rank = 1;
  ASSERT_TRUE(brain_->OnHello(hello, clock_.Now()).ok());
  QualityFrame frame;
  static_cast<TelemetryHeader&>(frame) = Frame({0, 0, 0});
  frame.rank = 1;
  frame.ranks = 2;
  frame.readings = {{512, 100, 1}};
  EXPECT_EQ(brain_->OnFrame(frame, clock_.Now()), FrameVerdict::kOtherShape);
  EXPECT_EQ(model().quality.tokens, 0u);
}

}  // namespace
}  // namespace stria
