#include "proto/codec.h"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace stria {
namespace {

StartSequence ExampleStart() {
  StartSequence start;
  start.name = {.id = (uint64_t{1} << 52) + 3, .attempt = 2};
  start.prompt = {5, 0, 49151, 7, 8};
  start.delivered = 2;
  start.max_new_tokens = 100;
  start.priority = -7;
  start.stop_tokens = {2, 0};
  start.forced = {9, 8, 7};
  start.sampling = {.temperature = 0.25f,
                    .top_p = 0.5f,
                    .top_k = 40,
                    .min_p = 0.125f,
                    .presence_penalty = -1,
                    .frequency_penalty = 2,
                    .repetition_penalty = 1.5f,
                    .logit_bias = {{3, -100.f}, {0, 1.5f}},
                    .seed = ~uint64_t{0},
                    .choice = 3,
                    .top_logprobs = 5};
  start.plan.follow_tiers = false;
  start.share_prefix = false;
  start.cache_salt = "tenant";
  start.plan.layers = {
      {.kind = LayerAction::Kind::kPlain, .keys = Width::kInt8, .values = Width::kInt2, .rank = 0, .latent = Width::kFp16},
      {.kind = LayerAction::Kind::kLatent, .keys = Width::kFp16, .values = Width::kFp16, .rank = 96, .latent = Width::kInt4},
      {.kind = LayerAction::Kind::kInherit, .keys = Width::kFp16, .values = Width::kFp16, .rank = 0, .latent = Width::kFp16}};
  start.plan.keep_tokens = 384;
  start.plan.widen = true;
  return start;
}

StepOutputs ExampleOutputs() {
  StepOutputs step;
  step.worker = "w";
  step.incarnation = 77;
  SequenceOutput& running = step.outputs.emplace_back();
  running.name = {1, 0};
  running.first_index = 4;
  running.tokens = {{.token = 11, .logprob = -0.5f, .top = {{11, -0.5f}, {12, -1.5f}}},
                    {.token = 13, .logprob = -std::numeric_limits<float>::infinity(), .top = {}},
                    {.token = 14, .logprob = 0, .top = {{14, 0}}}};
  running.epoch = 9;
  SequenceOutput& ended = step.outputs.emplace_back();
  ended.name = {2, 1};
  ended.first_index = 8;
  ended.finish = FinishReason::kError;
  ended.message = std::string(1000, 'x') + "\xff";
  ended.kv = {.bytes = 1000, .tokens = 65, .payload_bits = 4.5, .bits_per_element = 5, .fp16_bytes = 4000, .cached_tokens = 64, .guard_bits = 0.5};
  return step;
}

CanaryFrame ExampleFrame() {
  CanaryFrame frame;
  frame.worker = "w";
  frame.incarnation = 3;
  frame.model = "model";
  frame.rank = 1;
  frame.ranks = 3;
  frame.number = 12;
  frame.epoch = 4;
  frame.step = 640;
  frame.sequences = 8;
  frame.tokens = 12345;
  frame.cost_seconds = 1e-4;
  frame.readings = {{.layer = 0, .kind = CacheKind::kPlain, .kl = {0.5f, 0.05f, 0.001f}},
                    {.layer = 7, .kind = CacheKind::kLatent, .kl = {std::nanf(""), INFINITY, -1.f}}};
  return frame;
}

QualityFrame ExampleQuality() {
  QualityFrame frame;
  frame.worker = "w";
  frame.incarnation = 3;
  frame.model = "model";
  frame.rank = 1;
  frame.ranks = 3;
  frame.number = 13;
  frame.epoch = 4;
  frame.readings = {{512, 100, 0.5}, {1024, 7, 0.25}};
  return frame;
}

TierVector ExampleTiers() {
  TierVector tiers;
  tiers.epoch = ~uint64_t{0} - 1;
  tiers.model = "model";
  tiers.layers = {{Width::kInt2, Width::kInt4, Width::kInt8, Width::kFp16}, {Width::kFp16, Width::kInt8, Width::kInt4, Width::kInt2}};
  tiers.canary_rate = 0.5;
  tiers.reference_length = 1024;
  tiers.frozen = true;
  return tiers;
}

WorkerHello ExampleHello() {
  WorkerHello hello;
  hello.worker = "worker-1";
  hello.incarnation = 5;
  hello.model = "f00";
  hello.model_name = "smol";
  hello.http = "127.0.0.1:8002";
  hello.vocab = 49152;
  hello.max_context = 8192;
  hello.max_sequences = 64;
  hello.sink_pages = 2;
  hello.pool_bytes = uint64_t{1} << 40;
  hello.staging_bytes_per_token = 3000;
  hello.staging_bytes_max = 1 << 20;
  hello.layers = {{.key_page = {1, 2, 3, 4}, .value_page = {5, 6, 7, 8}, .ring = 9}, {}};
  return hello;
}

WorkerStatus ExampleStatus() {
  WorkerStatus status;
  status.worker = "worker-1";
  status.incarnation = 5;
  status.scheduler = 6;
  status.pool_bytes = 100;
  status.used_bytes = 50;
  status.staging_bytes = 10;
  status.running = 3;
  status.prefilling = 1;
  status.epoch = 8;
  status.key_bits = {2, 4, 8, 16};
  status.value_bits = {16, 8, 4, 2};
  status.guard_bits = {2, 2, 8, 4};
  status.draining = true;
  status.idle_bytes = 77;
  status.shared_bytes = 55;
  return status;
}

TEST(SequenceCodec, StartRoundTrip) {
  const StartSequence start = ExampleStart();
  const absl::StatusOr<ToWorker> decoded = DecodeToWorker(Encode(start));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const StartSequence& got = std::get<StartSequence>(*decoded);
  EXPECT_EQ(got.name, start.name);
  EXPECT_EQ(got.prompt, start.prompt);
  EXPECT_EQ(got.delivered, 2u);
  EXPECT_EQ(got.max_new_tokens, 100u);
  EXPECT_EQ(got.priority, -7);
  EXPECT_EQ(got.stop_tokens, start.stop_tokens);
  EXPECT_EQ(got.forced, start.forced);
  EXPECT_EQ(got.plan, start.plan);
  EXPECT_FALSE(got.share_prefix);
  EXPECT_EQ(got.cache_salt, "tenant");
  EXPECT_EQ(got.sampling.temperature, 0.25f);
  EXPECT_EQ(got.sampling.top_p, 0.5f);
  EXPECT_EQ(got.sampling.top_k, 40u);
  EXPECT_EQ(got.sampling.min_p, 0.125f);
  EXPECT_EQ(got.sampling.presence_penalty, -1);
  EXPECT_EQ(got.sampling.frequency_penalty, 2);
  EXPECT_EQ(got.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(got.sampling.logit_bias, start.sampling.logit_bias);
  EXPECT_EQ(got.sampling.seed, ~uint64_t{0});
  EXPECT_EQ(got.sampling.choice, 3u);
  EXPECT_EQ(got.sampling.top_logprobs, 5);
}

TEST(SequenceCodec, SmallCommandsRoundTrip) {
  const auto cancel = DecodeToWorker(Encode(CancelSequence{{4, 1}}));
  ASSERT_TRUE(cancel.ok());
  EXPECT_EQ(std::get<CancelSequence>(*cancel).name, (SequenceName{4, 1}));
  const auto ack = DecodeToWorker(Encode(AckSequence{{4, 1}, 17, true}));
  ASSERT_TRUE(ack.ok());
  EXPECT_EQ(std::get<AckSequence>(*ack).name, (SequenceName{4, 1}));
  EXPECT_EQ(std::get<AckSequence>(*ack).tokens, 17u);
  EXPECT_TRUE(std::get<AckSequence>(*ack).finished);
  const auto hello = DecodeToWorker(Encode(SchedulerHello{123}));
  ASSERT_TRUE(hello.ok());
  EXPECT_EQ(std::get<SchedulerHello>(*hello).incarnation, 123u);
}

TEST(SequenceCodec, OutputsRoundTrip) {
  const StepOutputs step = ExampleOutputs();
  const absl::StatusOr<ToScheduler> decoded = DecodeToScheduler(Encode(step));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const StepOutputs& got = std::get<StepOutputs>(*decoded);
  EXPECT_EQ(got.worker, "w");
  EXPECT_EQ(got.incarnation, 77u);
  ASSERT_EQ(got.outputs.size(), 2u);
  const SequenceOutput& running = got.outputs[0];
  EXPECT_EQ(running.name, (SequenceName{1, 0}));
  EXPECT_EQ(running.first_index, 4u);
  EXPECT_EQ(running.finish, FinishReason::kNone);
  EXPECT_EQ(running.epoch, 9u);
  ASSERT_EQ(running.tokens.size(), 3u);
  ASSERT_EQ(running.tokens[0].top.size(), 2u);
  EXPECT_EQ(running.tokens[0].top[1].token, 12);
  EXPECT_EQ(running.tokens[0].top[1].logprob, -1.5f);
  EXPECT_EQ(running.tokens[1].token, 13);
  EXPECT_TRUE(std::isinf(running.tokens[1].logprob));
  EXPECT_TRUE(running.tokens[1].top.empty());
  EXPECT_EQ(running.tokens[2].top.at(0).token, 14);
  const SequenceOutput& ended = got.outputs[1];
  EXPECT_EQ(ended.finish, FinishReason::kError);
  EXPECT_EQ(ended.message, step.outputs[1].message);
  EXPECT_EQ(ended.kv.bytes, 1000u);
  EXPECT_EQ(ended.kv.tokens, 65u);
  EXPECT_EQ(ended.kv.payload_bits, 4.5);
  EXPECT_EQ(ended.kv.bits_per_element, 5);
  EXPECT_EQ(ended.kv.fp16_bytes, 4000u);
  EXPECT_EQ(ended.kv.cached_tokens, 64u);
  EXPECT_EQ(ended.kv.guard_bits, 0.5);
}

TEST(SequenceCodec, HelloAndStatusRoundTrip) {
  const auto hello = DecodeToScheduler(Encode(ExampleHello()));
  ASSERT_TRUE(hello.ok()) << hello.status();
  const WorkerHello& h = std::get<WorkerHello>(*hello);
  EXPECT_EQ(h.worker, "worker-1");
  EXPECT_EQ(h.incarnation, 5u);
  EXPECT_EQ(h.model, "f00");
  EXPECT_EQ(h.model_name, "smol");
  EXPECT_EQ(h.http, "127.0.0.1:8002");
  EXPECT_EQ(h.vocab, 49152u);
  EXPECT_EQ(h.max_context, 8192u);
  EXPECT_EQ(h.max_sequences, 64u);
  EXPECT_EQ(h.sink_pages, 2u);
  EXPECT_EQ(h.pool_bytes, uint64_t{1} << 40);
  EXPECT_EQ(h.staging_bytes_per_token, 3000u);
  EXPECT_EQ(h.staging_bytes_max, 1u << 20);
  EXPECT_EQ(h.layers, ExampleHello().layers);

  const auto status = DecodeToScheduler(Encode(ExampleStatus()));
  ASSERT_TRUE(status.ok()) << status.status();
  const WorkerStatus& s = std::get<WorkerStatus>(*status);
  EXPECT_EQ(s.scheduler, 6u);
  EXPECT_EQ(s.pool_bytes, 100u);
  EXPECT_EQ(s.used_bytes, 50u);
  EXPECT_EQ(s.staging_bytes, 10u);
  EXPECT_EQ(s.running, 3u);
  EXPECT_EQ(s.prefilling, 1u);
  EXPECT_EQ(s.epoch, 8u);
  EXPECT_EQ(s.key_bits, ExampleStatus().key_bits);
  EXPECT_EQ(s.value_bits, ExampleStatus().value_bits);
  EXPECT_EQ(s.guard_bits, ExampleStatus().guard_bits);
  EXPECT_TRUE(s.draining);
  EXPECT_EQ(s.idle_bytes, 77u);
  EXPECT_EQ(s.shared_bytes, 55u);
}

TEST(TierCodec, RoundTrip) {
  const auto tiers = DecodeTierVector(Encode(ExampleTiers()));
  ASSERT_TRUE(tiers.ok()) << tiers.status();
  EXPECT_EQ(*tiers, ExampleTiers());

  TierHello hello{.worker = "w", .incarnation = 1, .model = "m", .model_name = "n", .layers = 30, .rank = 2, .ranks = 3, .epoch = 4, .http = "h:1"};
  const auto decoded = DecodeToController(Encode(hello));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const TierHello& got = std::get<TierHello>(*decoded);
  EXPECT_EQ(got.worker, "w");
  EXPECT_EQ(got.incarnation, 1u);
  EXPECT_EQ(got.model, "m");
  EXPECT_EQ(got.model_name, "n");
  EXPECT_EQ(got.layers, 30u);
  EXPECT_EQ(got.rank, 2u);
  EXPECT_EQ(got.ranks, 3u);
  EXPECT_EQ(got.epoch, 4u);
  EXPECT_EQ(got.http, "h:1");

  const auto ack = DecodeToController(Encode(TierAck{"w", 1, 9}));
  ASSERT_TRUE(ack.ok());
  EXPECT_EQ(std::get<TierAck>(*ack).epoch, 9u);
}

CacheReport ExampleReport() {
  CacheReport report;
  report.worker = "w";
  report.incarnation = 5;
  report.number = 17;
  report.epoch = 6;
  report.pool_bytes = 1000;
  report.used_bytes = 700;
  report.pages_of = 9;
  report.sequences = {{.name = {9, 2}, .tokens = 130, .positions = 194, .tail = 2, .ring_keys = 64, .prefilling = false,
                       .page_bytes = {1, 2, 3, 4}, .ring_bytes = 50, .bytes = 60, .fp16_bytes = 240},
                      {.name = {10, 0}, .prefilling = true}};
  report.layers = {{.keys = {Width::kFp16, Width::kInt2}, .values = {Width::kFp16, Width::kInt4}}, {}};
  return report;
}

TEST(TierCodec, CacheReportRoundTrip) {
  const auto query = DecodeFromController(Encode(CacheQuery{.number = 17, .sequence = 9}));
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(std::get<CacheQuery>(*query).number, 17u);
  EXPECT_EQ(std::get<CacheQuery>(*query).sequence, 9u);
  EXPECT_EQ(std::get<TierVector>(*DecodeFromController(Encode(ExampleTiers()))), ExampleTiers());

  const auto decoded = DecodeToController(Encode(ExampleReport()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const CacheReport& got = std::get<CacheReport>(*decoded);
  EXPECT_EQ(got.worker, "w");
  EXPECT_EQ(got.incarnation, 5u);
  EXPECT_EQ(got.number, 17u);
  EXPECT_EQ(got.epoch, 6u);
  EXPECT_EQ(got.pool_bytes, 1000u);
  EXPECT_EQ(got.used_bytes, 700u);
  EXPECT_EQ(got.pages_of, 9u);
  EXPECT_EQ(got.layers, ExampleReport().layers);
  ASSERT_EQ(got.sequences.size(), 2u);
  const SequenceHeld& held = got.sequences[0];
  EXPECT_EQ(held.name, (SequenceName{9, 2}));
  EXPECT_EQ(held.tokens, 130u);
  EXPECT_EQ(held.positions, 194u);
  EXPECT_EQ(held.tail, 2u);
  EXPECT_EQ(held.ring_keys, 64u);
  EXPECT_EQ(held.page_bytes, (std::array<uint64_t, 4>{1, 2, 3, 4}));
  EXPECT_EQ(held.ring_bytes, 50u);
  EXPECT_EQ(held.bytes, 60u);
  EXPECT_EQ(held.fp16_bytes, 240u);
  EXPECT_FALSE(held.prefilling);
  EXPECT_TRUE(got.sequences[1].prefilling);
}

TEST(TelemetryCodec, RoundTripKeepsBadReadings) {
  const auto decoded = DecodeTelemetry(Encode(ExampleFrame()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto* frame = std::get_if<CanaryFrame>(&*decoded);
  ASSERT_NE(frame, nullptr);
  EXPECT_EQ(frame->worker, "w");
  EXPECT_EQ(frame->incarnation, 3u);
  EXPECT_EQ(frame->model, "model");
  EXPECT_EQ(frame->rank, 1u);
  EXPECT_EQ(frame->ranks, 3u);
  EXPECT_EQ(frame->number, 12u);
  EXPECT_EQ(frame->epoch, 4u);
  EXPECT_EQ(frame->step, 640u);
  EXPECT_EQ(frame->sequences, 8u);
  EXPECT_EQ(frame->tokens, 12345u);
  EXPECT_EQ(frame->cost_seconds, 1e-4);
  ASSERT_EQ(frame->readings.size(), 2u);
  EXPECT_EQ(frame->readings[0].kl, (std::array<float, 3>{0.5f, 0.05f, 0.001f}));
  EXPECT_EQ(frame->readings[1].layer, 7u);
  EXPECT_EQ(frame->readings[1].kind, CacheKind::kLatent);
  EXPECT_TRUE(std::isnan(frame->readings[1].kl[0]));
  EXPECT_TRUE(std::isinf(frame->readings[1].kl[1]));
  EXPECT_EQ(frame->readings[1].kl[2], -1.f);
}

TEST(TelemetryCodec, QualityRoundTrip) {
  const auto decoded = DecodeTelemetry(Encode(ExampleQuality()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  const auto* frame = std::get_if<QualityFrame>(&*decoded);
  ASSERT_NE(frame, nullptr);
  EXPECT_EQ(frame->worker, "w");
  EXPECT_EQ(frame->incarnation, 3u);
  EXPECT_EQ(frame->model, "model");
  EXPECT_EQ(frame->rank, 1u);
  EXPECT_EQ(frame->ranks, 3u);
  EXPECT_EQ(frame->number, 13u);
  EXPECT_EQ(frame->epoch, 4u);
  ASSERT_EQ(frame->readings.size(), 2u);
  EXPECT_EQ(frame->readings[1].length, 1024u);
  EXPECT_EQ(frame->readings[1].tokens, 7u);
  EXPECT_EQ(frame->readings[1].kl, 0.25);
}

// Each refusal names the field; the values are out of range, not the bytes malformed.
TEST(Codec, RefusesWhatIsOutOfRange) {
  const auto message = [](const auto& decoded) { return std::string(decoded.status().message()); };
  TierVector tiers = ExampleTiers();
  tiers.layers[1].values = static_cast<Width>(3);
  EXPECT_EQ(message(DecodeTierVector(Encode(tiers))), "LayerTier.values is 3 bits");
  tiers = ExampleTiers();
  tiers.canary_rate = std::nan("");
  EXPECT_EQ(message(DecodeTierVector(Encode(tiers))), "TierVector.canary_rate is nan");
  tiers = ExampleTiers();
  tiers.reference_length = 0;
  EXPECT_EQ(message(DecodeTierVector(Encode(tiers))), "TierVector.reference_length is 0");
  tiers = ExampleTiers();
  tiers.layers.resize(kMaxLayers + 1);
  EXPECT_EQ(message(DecodeTierVector(Encode(tiers))), "TierVector.layers is 4097 layers, over 4096");
  tiers = ExampleTiers();
  tiers.model = std::string(257, 'm');
  EXPECT_EQ(message(DecodeTierVector(Encode(tiers))), "TierVector.model is 257 bytes long");

  StartSequence start = ExampleStart();
  start.prompt.clear();
  start.delivered = 0;
  EXPECT_EQ(message(DecodeToWorker(Encode(start))), "StartSequence.prompt is empty");
  start = ExampleStart();
  start.delivered = 6;
  EXPECT_EQ(message(DecodeToWorker(Encode(start))), "StartSequence.delivered is 6, more than its prompt's 5");
  start = ExampleStart();
  start.sampling.temperature = INFINITY;
  EXPECT_EQ(message(DecodeToWorker(Encode(start))), "Sampling.temperature is inf");

  WorkerStatus status = ExampleStatus();
  status.key_bits[2] = 5;
  EXPECT_EQ(message(DecodeToScheduler(Encode(status))), "WorkerStatus width is 5 bits");
  status = ExampleStatus();
  status.value_bits.pop_back();
  EXPECT_EQ(message(DecodeToScheduler(Encode(status))), "WorkerStatus.value_bits is 3 layers, keys 4");
  status = ExampleStatus();
  status.guard_bits.pop_back();
  EXPECT_EQ(message(DecodeToScheduler(Encode(status))), "WorkerStatus.guard_bits is 3 layers, keys 4");

  CacheReport report = ExampleReport();
  report.layers[0].values[1] = static_cast<Width>(7);
  EXPECT_EQ(message(DecodeToController(Encode(report))), "LayerPages.values is 7 bits");

  CanaryFrame frame = ExampleFrame();
  frame.rank = 3;
  EXPECT_EQ(message(DecodeTelemetry(Encode(frame))), "CanaryFrame.rank is 3 of 3");
  frame = ExampleFrame();
  frame.number = 0;
  EXPECT_EQ(message(DecodeTelemetry(Encode(frame))), "CanaryFrame.number is 0");
  frame = ExampleFrame();
  frame.worker = "";
  EXPECT_EQ(message(DecodeTelemetry(Encode(frame))), "CanaryFrame.worker is empty");

  const auto quality = [&](uint32_t length, uint64_t tokens, double kl) {
    QualityFrame frame = ExampleQuality();
    frame.readings[1] = {length, tokens, kl};
    return message(DecodeTelemetry(Encode(frame)));
  };
  EXPECT_EQ(quality(1024, 7, 0), "");
  EXPECT_EQ(quality(1024, 7, std::nan("")), "QualityReading.kl is nan");
  EXPECT_EQ(quality(1024, 7, INFINITY), "QualityReading.kl is inf");
  EXPECT_EQ(quality(1024, 7, -0.5), "QualityReading.kl is -0.5");
  EXPECT_EQ(quality(1024, 7, 7001), "QualityReading.kl is 7001");
  EXPECT_EQ(quality(1024, 0, 0), "QualityReading.tokens is 0");
  EXPECT_EQ(quality(1000, 7, 0), "QualityReading.length is 1000");
  EXPECT_EQ(quality(512, 7, 0), "QualityReading.length is 512");  // there already
  QualityFrame anonymous = ExampleQuality();
  anonymous.worker = "";
  EXPECT_EQ(message(DecodeTelemetry(Encode(anonymous))), "QualityFrame.worker is empty");
}

TEST(Codec, RefusesTheOtherDirectionAndOtherSockets) {
  EXPECT_FALSE(DecodeToScheduler(Encode(SchedulerHello{1})).ok());
  EXPECT_FALSE(DecodeToWorker(Encode(ExampleStatus())).ok());
  EXPECT_FALSE(DecodeTierVector(Encode(TierAck{"w", 1, 1})).ok());
  EXPECT_FALSE(DecodeTierVector(Encode(CacheQuery{1, 1})).ok());
  EXPECT_FALSE(DecodeFromController(Encode(ExampleReport())).ok());
  EXPECT_FALSE(DecodeToController(Encode(ExampleTiers())).ok());
  EXPECT_FALSE(DecodeTelemetry(Encode(ExampleTiers())).ok());
  EXPECT_FALSE(DecodeToWorker(Encode(ExampleFrame())).ok());
  EXPECT_FALSE(DecodeToController(Encode(ExampleQuality())).ok());
}

TEST(Codec, RefusesEmptyAndOversizedFrames) {
  EXPECT_FALSE(DecodeToWorker("").ok());
  EXPECT_FALSE(DecodeToWorker("abc").ok());
  StartSequence start = ExampleStart();
  start.prompt.assign(kMaxFrameBytes / 4 + 1, 1);
  const auto decoded = DecodeToWorker(Encode(start));
  EXPECT_FALSE(decoded.ok());
}

// Frames arrive wherever the socket's buffer lies.
TEST(Codec, AnyAlignment) {
  const std::string frame = Encode(ExampleOutputs());
  for (size_t offset = 0; offset < 8; ++offset) {
    std::string shifted(offset, 'p');
    shifted += frame;
    EXPECT_TRUE(DecodeToScheduler(std::string_view(shifted).substr(offset)).ok()) << offset;
  }
}

}  // namespace
}  // namespace stria
