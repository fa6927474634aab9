#include "eval/quality_target/live_fleet.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace stria {
namespace {

constexpr Duration kTurn = std::chrono::milliseconds(50);
constexpr uint64_t kOffsets = 7;  // stream of the generator

ControllerState StartWith(const Settings& settings) {
  ControllerState state;
  state.settings = settings;
  return state;
}

}  // namespace

Scored& Scored::operator+=(const Scored& other) {
  tokens += other.tokens;
  kl += other.kl;
  bits += other.bits;
  tau += other.tau;
  return *this;
}

LiveFleet::LiveFleet(const std::string& fingerprint, const Settings& settings, const Calibration& calibration, const FleetOptions& options)
    : fingerprint_(fingerprint), options_(options), brain_(StartWith(settings), MakeTierPolicy(), {calibration}) {}

absl::StatusOr<std::unique_ptr<LiveFleet>> LiveFleet::Create(Transformer& transformer, const std::string& fingerprint,
                                                             const Settings& settings, const Calibration& calibration,
                                                             const FleetOptions& options, std::vector<Workload> workloads) {
  Settings with_rate = settings;
  with_rate.canary_rate = options.canary_rate;
  std::unique_ptr<LiveFleet> fleet(new LiveFleet(fingerprint, with_rate, calibration, options));
  const int layers = transformer.config().layers;
  for (Workload& workload : workloads) {
    EngineOptions engine;
    engine.max_sequences = options.streams;
    engine.threads = options.threads;
    engine.canary_seed = options.seed + fleet->workers_.size();
    engine.shadows = {.share = 1, .sequences = options.streams, .bytes = engine.pool_bytes};
    Worker& worker = fleet->workers_.emplace_back();
    worker.name = absl::StrCat("worker", fleet->workers_.size());
    worker.workload = std::move(workload);
    STRIA_ASSIGN_OR_RETURN(worker.engine, Engine::Create(transformer, engine, fleet->clock_));
    TierHello hello;
    hello.worker = worker.name;
    hello.incarnation = 1;
    hello.model = hello.model_name = fingerprint;
    hello.layers = static_cast<uint32_t>(layers);
    STRIA_RETURN_IF_ERROR(fleet->brain_.OnHello(hello, fleet->clock_.Now()));
  }
  fleet->Publish();
  return fleet;
}

absl::Status LiveFleet::StartRequest(Worker& worker, std::vector<int32_t> tokens, uint32_t prompt) {
  StartSequence start;
  start.name = {next_id_++, 0};
  start.prompt.assign(tokens.begin(), tokens.begin() + prompt);
  start.forced.assign(tokens.begin() + prompt, tokens.end());
  start.max_new_tokens = static_cast<uint32_t>(start.forced.size());
  STRIA_RETURN_IF_ERROR(worker.engine->Start(start));
  ++worker.running;
  return absl::OkStatus();
}

absl::Status LiveFleet::Converse(size_t worker, std::vector<int32_t> tokens, uint32_t prompt) {
  workers_[worker].converses = true;
  return StartRequest(workers_[worker], std::move(tokens), prompt);
}

bool LiveFleet::idle() const {
  for (const Worker& worker : workers_)
    if (worker.running > 0) return false;
  return true;
}

std::vector<Scored> LiveFleet::Step() {
  std::vector<Scored> measured(workers_.size());
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    while (!worker.converses && worker.running < options_.streams) {
      const std::vector<int32_t>& text = worker.workload.tokens;
      const auto offset = static_cast<size_t>(Uniform(options_.seed, kOffsets, next_id_) * static_cast<double>(text.size()));
      std::vector<int32_t> tokens;
      for (uint32_t t = 0; t < options_.prompt + options_.answer; ++t) tokens.push_back(text[(offset + t) % text.size()]);
      STRIA_CHECK(StartRequest(worker, std::move(tokens), options_.prompt).ok());
    }
    TurnResult turn = worker.engine->Turn();
    for (const SequenceOutput& output : turn.outputs) {
      if (output.finish == FinishReason::kNone) continue;
      STRIA_CHECK(output.finish == FinishReason::kLength);
      --worker.running;
    }
    const auto tell = [&](auto& frame) {
      frame.worker = worker.name;
      frame.incarnation = 1;
      frame.model = fingerprint_;
      frame.number = ++worker.number;
      brain_.OnFrame(frame, clock_.Now());
    };
    if (turn.canary) tell(*turn.canary);
    if (!turn.quality) continue;
    for (const QualityReading& reading : turn.quality->readings) {
      const auto tokens = static_cast<double>(reading.tokens);
      measured[i] += {.tokens = tokens, .kl = reading.kl, .bits = tokens * bits(), .tau = tokens * tau()};
    }
    tell(*turn.quality);
  }
  clock_.Advance(kTurn);
  Publish();
  return measured;
}

void LiveFleet::Publish() {
  for (const Publication& draft : brain_.Draft(clock_.UnixSeconds())) brain_.Commit(draft, clock_.Now());
  for (const Delivery& delivery : brain_.TakeDue(clock_.Now())) {
    for (Worker& worker : workers_)
      if (worker.name == delivery.worker) STRIA_CHECK(worker.engine->ApplyTiers(*delivery.vector).ok());
    const uint64_t epoch = delivery.vector->epoch;
    brain_.OnAck({delivery.worker, 1, epoch}, clock_.Now());
  }
  brain_.TakeLoopSteps(clock_.UnixSeconds());
}

double LiveFleet::bits() const {
  double sum = 0;
  for (const LayerTier& tier : model().published.layers) sum += Bits(tier.keys) + Bits(tier.values);
  return sum / 2 / static_cast<double>(model().published.layers.size());
}

}  // namespace stria
