// Tier link, telemetry link, the loop, and HTTP beside it.
#include "services/worker/worker_loop.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "services/common/http_client.h"
#include "services/worker/fake_channel.h"
#include "services/worker/fake_engine.h"
#include "services/worker/sequences_json.h"
#include "services/worker/worker_http.h"

namespace stria {
namespace {

using std::chrono::seconds;

const WorkerIdentity kIdentity = {.name = "w", .incarnation = 9, .model = "model", .model_name = "name", .http = "h:1"};

TierVector TiersOf(uint64_t epoch, Width width, const std::string& model = "model", int layers = 2) {
  TierVector tiers;
  tiers.epoch = epoch;
  tiers.model = model;
  tiers.layers.resize(layers);
  for (LayerTier& tier : tiers.layers) tier.keys = tier.values = width;
  return tiers;
}

class TierLinkTest : public testing::Test {
 protected:
  void Arrive(const TierVector& tiers) { channel_.arriving.push_back(Encode(tiers)); }
  std::vector<uint64_t> Acks() {
    std::vector<uint64_t> epochs;
    for (const std::string& frame : std::exchange(channel_.sent, {})) {
      const auto decoded = DecodeToController(frame);
      EXPECT_TRUE(decoded.ok());
      if (const auto* ack = std::get_if<TierAck>(&*decoded)) {
        EXPECT_EQ(ack->worker, "w");
        EXPECT_EQ(ack->incarnation, 9u);
        epochs.push_back(ack->epoch);
      }
    }
    return epochs;
  }

  FakeClock clock_;
  FakeChannel channel_;
  FakeEngine engine_{2};
  TierLink link_{kIdentity, 2, channel_, engine_, clock_};
};

TEST_F(TierLinkTest, AppliesTheNewestAndAcknowledges) {
  Arrive(TiersOf(3, Width::kInt4));
  Arrive(TiersOf(5, Width::kInt2));
  Arrive(TiersOf(4, Width::kInt8));
  link_.TakeAndApply();
  EXPECT_EQ(engine_.tiers().epoch, 5u);
  EXPECT_EQ(engine_.tiers().layers[1].keys, Width::kInt2);
  EXPECT_EQ(engine_.applied, 1);  // between two steps, one vector
  EXPECT_EQ(Acks(), (std::vector<uint64_t>{5}));
}

TEST_F(TierLinkTest, OlderIsIgnoredAndToldTheEpochInForce) {
  Arrive(TiersOf(5, Width::kInt2));
  link_.TakeAndApply();
  Acks();
  Arrive(TiersOf(4, Width::kInt8));
  Arrive(TiersOf(5, Width::kInt8));  // the same again: its acknowledgement was lost
  link_.TakeAndApply();
  EXPECT_EQ(engine_.applied, 1);
  EXPECT_EQ(engine_.tiers().layers[0].keys, Width::kInt2);
  EXPECT_EQ(Acks(), (std::vector<uint64_t>{5, 5}));
  EXPECT_EQ(link_.stats().stale, 1u);
}

TEST_F(TierLinkTest, RefusesForeignVectors) {
  Arrive(TiersOf(7, Width::kInt2, "other"));
  Arrive(TiersOf(8, Width::kInt2, "model", 3));
  channel_.arriving.push_back("garbage");
  link_.TakeAndApply();
  EXPECT_EQ(engine_.tiers().epoch, 0u);
  EXPECT_EQ(link_.stats().refused_frames, 3u);
  EXPECT_TRUE(Acks().empty());
}

TEST_F(TierLinkTest, TellsWhatTheCacheHolds) {
  StartSequence start;
  start.name = {4, 1};
  start.prompt = {1};
  start.max_new_tokens = 9;
  ASSERT_TRUE(engine_.Start(start).ok());
  channel_.arriving.push_back(Encode(CacheQuery{.number = 12, .sequence = 4}));
  link_.TakeAndApply();
  ASSERT_EQ(channel_.sent.size(), 1u);
  const auto decoded = DecodeToController(channel_.sent[0]);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const CacheReport& report = std::get<CacheReport>(*decoded);
  EXPECT_EQ(report.worker, kIdentity.name);
  EXPECT_EQ(report.incarnation, kIdentity.incarnation);
  EXPECT_EQ(report.number, 12u);
  EXPECT_EQ(report.pages_of, 4u);
  ASSERT_EQ(report.sequences.size(), 1u);
  EXPECT_EQ(report.sequences[0].name, start.name);
  EXPECT_EQ(link_.stats().refused_frames, 0u);
}

TEST_F(TierLinkTest, HelloEverySecondSaysTheEpoch) {
  link_.Tick();
  Arrive(TiersOf(5, Width::kInt2));
  link_.TakeAndApply();
  for (int i = 0; i < 4; ++i) {
    clock_.Advance(std::chrono::milliseconds(500));
    link_.Tick();
  }
  std::vector<uint64_t> epochs;
  for (const std::string& frame : channel_.sent) {
    const auto decoded = DecodeToController(frame);
    ASSERT_TRUE(decoded.ok());
    if (const auto* hello = std::get_if<TierHello>(&*decoded)) {
      epochs.push_back(hello->epoch);
      EXPECT_EQ(hello->model, "model");
      EXPECT_EQ(hello->layers, 2u);
    }
  }
  EXPECT_EQ(epochs, (std::vector<uint64_t>{0, 5, 5}));
}

TEST(TelemetryLink, NumbersGoOnWhenAFrameIsLost) {
  FakeChannel channel;
  TelemetryLink link(kIdentity, channel);
  for (int i = 0; i < 3; ++i) {
    channel.connected = i != 1;
    if (i < 2) link.Publish(CanaryFrame());
    if (i == 2) link.Publish(QualityFrame());  // kinds share the numbers
  }
  std::vector<uint64_t> numbers;
  for (const std::string& frame : channel.sent) {
    const auto decoded = DecodeTelemetry(frame);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    std::visit(
        [&](const auto& said) {
          EXPECT_EQ(said.worker, "w");
          EXPECT_EQ(said.model, "model");
          numbers.push_back(said.number);
        },
        *decoded);
  }
  EXPECT_EQ(numbers, (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(link.unsent(), 1u);
}

class WorkerLoopTest : public testing::Test {
 protected:
  WorkerLoopTest() {
    WorkerHello hello;
    hello.worker = "w";
    hello.incarnation = 9;
    hello.model = "model";
    sequences_.emplace(hello, SequenceLinkOptions{}, sequence_channel_, engine_, clock_);
    metrics_of_worker_.emplace(metrics_, kIdentity, engine_, *sequences_, tiers_, telemetry_, clock_);
    loop_.emplace(WorkerLoop::Parts{engine_, *sequences_, tiers_, telemetry_, tasks_, *metrics_of_worker_, clock_, log_,
                                    [this](Duration most) { OnWait(most); }});
    sequence_channel_.arriving.push_back(Encode(SchedulerHello{4}));
  }
  void StartSequenceOf(uint32_t tokens) {
    StartSequence start;
    start.name = {1, 0};
    start.prompt = {1};
    start.max_new_tokens = tokens;
    sequence_channel_.arriving.push_back(Encode(start));
  }
  virtual void OnWait(Duration most) {
    EXPECT_GT(most, Duration::zero());
    EXPECT_LE(most, seconds(1));
    clock_.Advance(most);
    ++waits_;
  }

  FakeClock clock_;
  FakeEngine engine_{2};
  FakeChannel sequence_channel_, tier_channel_, telemetry_channel_;
  std::optional<SequenceLink> sequences_;
  TierLink tiers_{kIdentity, 2, tier_channel_, engine_, clock_};
  TelemetryLink telemetry_{kIdentity, telemetry_channel_};
  LoopTasks tasks_;
  Metrics metrics_;
  Logger log_{"test"};
  std::optional<WorkerMetrics> metrics_of_worker_;
  std::optional<WorkerLoop> loop_;
  int waits_ = 0;
};

TEST_F(WorkerLoopTest, TiersComeBetweenTwoSteps) {
  loop_->RunOnce();
  StartSequenceOf(10);
  EXPECT_TRUE(loop_->RunOnce());
  tier_channel_.arriving.push_back(Encode(TiersOf(2, Width::kInt4)));
  sequence_channel_.sent.clear();
  EXPECT_TRUE(loop_->RunOnce());
  const auto decoded = DecodeToScheduler(sequence_channel_.sent.at(0));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::get<StepOutputs>(*decoded).outputs.at(0).epoch, 2u);  // applied before this step, not in it
}

TEST_F(WorkerLoopTest, FiringsAndMeasuredQualityArePublished) {
  engine_.fire = engine_.measure = true;
  loop_->RunOnce();
  StartSequenceOf(3);
  for (int i = 0; i < 5; ++i) loop_->RunOnce();
  ASSERT_EQ(telemetry_channel_.sent.size(), 6u);
  EXPECT_TRUE(std::holds_alternative<CanaryFrame>(*DecodeTelemetry(telemetry_channel_.sent.front())));
  EXPECT_TRUE(std::holds_alternative<QualityFrame>(*DecodeTelemetry(telemetry_channel_.sent.back())));
}

TEST_F(WorkerLoopTest, SleepsWithoutWorkAndDrains) {
  loop_->RunOnce();
  StartSequenceOf(5);
  loop_->RunOnce();
  tasks_.Post([&] { loop_->Drain(); });
  loop_->Run(seconds(100));  // the scheduler never acknowledges: ends at the limit, not before
  EXPECT_GT(waits_, 10);
  EXPECT_LT(waits_, 1000);
  const std::string text = metrics_.Serialize();
  EXPECT_NE(text.find("stria_worker_sequences_running 0"), std::string::npos) << text;
}

TEST_F(WorkerLoopTest, MetricsFollowTheEngine) {
  loop_->RunOnce();
  StartSequenceOf(3);
  tier_channel_.arriving.push_back(Encode(TiersOf(6, Width::kInt8)));
  for (int i = 0; i < 5; ++i) {
    loop_->RunOnce();
    clock_.Advance(seconds(1));
  }
  const std::string text = metrics_.Serialize();
  for (const char* line : {"stria_worker_steps_total 3", "stria_worker_tier_epoch 6", "stria_worker_commands_total{kind=\"start\"} 1",
                           "stria_worker_tier_bits{layer=\"1\",tensor=\"keys\"} 8", "stria_worker_step_seconds_count 3"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

TEST_F(WorkerLoopTest, ALoopThatHangsIsNotAlive) {
  clock_.Advance(seconds(100));
  EXPECT_TRUE(absl::IsUnavailable(loop_->Health(seconds(60))));
  loop_->RunOnce();
  clock_.Advance(seconds(60));
  EXPECT_TRUE(loop_->Health(seconds(60)).ok());
  clock_.Advance(seconds(1));
  EXPECT_NE(loop_->Health(seconds(60)).message().find("61 s"), std::string::npos);

  WorkerHttp::Options options;
  options.on_stop = [] {};
  auto http = WorkerHttp::Start(options, metrics_, tasks_);
  ASSERT_TRUE(http.ok()) << http.status();
  HttpClient client("127.0.0.1", (*http)->port(), 20);
  (*http)->set_health([] { return absl::UnavailableError("hangs"); });
  EXPECT_EQ(client.Get("/health")->status, 200) << "while it loads";
  (*http)->set_phase(WorkerPhase::kServing);
  EXPECT_EQ(client.Get("/health")->status, 503);
}

TEST_F(WorkerLoopTest, WithTokensOnlyProbesAndMetricsAreOpen) {
  WorkerHttp::Options options;
  options.tokens = *TokenTable::Parse("viewer bob fedcba9876543210");
  options.on_stop = [] {};
  auto http = WorkerHttp::Start(std::move(options), metrics_, tasks_);
  ASSERT_TRUE(http.ok()) << http.status();
  HttpClient client("127.0.0.1", (*http)->port(), 20);
  int guarded = 0;
  for (const auto& [method, path] : (*http)->Routes()) {
    const bool open = path == "/health" || path == "/ready" || path == "/metrics";
    const int without = client.Request(method, path, "")->status;
    EXPECT_EQ(without == 401, !open) << path << " says " << without;
    EXPECT_EQ(client.Request(method, path, "", {{"Authorization", "Bearer fedcba987654321"}})->status == 401, !open) << path;
    EXPECT_NE(client.Request(method, path, "", {{"Authorization", "Bearer fedcba9876543210"}})->status, 401) << path;
    guarded += !open;
  }
  EXPECT_EQ(guarded, 2) << "/config and /debug/sequences";
}

TEST_F(WorkerLoopTest, HttpLooksIntoTheEngineThroughTheLoop) {
  WorkerHttp::Options options;
  options.config_json = "{\"a\":1}";
  options.on_stop = [] {};
  auto http = WorkerHttp::Start(options, metrics_, tasks_);
  ASSERT_TRUE(http.ok()) << http.status();
  HttpClient client("127.0.0.1", (*http)->port(), 20);
  EXPECT_EQ(client.Get("/health")->status, 200);
  EXPECT_EQ(client.Get("/ready")->status, 503);
  EXPECT_EQ(client.Get("/debug/sequences")->status, 503);
  (*http)->set_describe([this] { return SequencesJson(engine_); });
  (*http)->set_phase(WorkerPhase::kServing);
  EXPECT_EQ(client.Get("/ready")->status, 200);
  EXPECT_EQ(client.Get("/config")->body, "{\"a\":1}");
  EXPECT_NE(client.Get("/metrics")->body.find("stria_worker_pool_bytes"), std::string::npos);

  loop_->RunOnce();
  StartSequenceOf(100);
  loop_->RunOnce();
  absl::StatusOr<HttpReply> reply;
  std::atomic<bool> answered = false;
  std::thread asking([&] {
    reply = client.Get("/debug/sequences");
    answered = true;
  });
  while (!answered) {  // this thread is the loop's
    tasks_.RunAll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  asking.join();
  ASSERT_TRUE(reply.ok());
  const auto json = nlohmann::json::parse(reply->body);
  const auto& sequence = json["sequences"].at(0);
  EXPECT_EQ(sequence["id"], 1);
  EXPECT_EQ(sequence["layers"][0]["keys"][0]["bits"], 16);
  EXPECT_EQ(sequence["layers"][0]["keys"][0]["hash"], "0000000000000abc");
  EXPECT_EQ(sequence["layers"][0]["keys"][1]["bits"], 2);
  EXPECT_EQ(sequence["layers"][0]["tail"], 3);
}

}  // namespace
}  // namespace stria
