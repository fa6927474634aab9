#include "controller/controller.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace stria {
namespace {

constexpr size_t kMaxModels = 256;
constexpr size_t kMaxLoopSteps = 10'000;  // waiting to be written

bool SameButEpoch(const TierVector& a, const TierVector& b) {
  return a.layers == b.layers && a.canary_rate == b.canary_rate && a.reference_length == b.reference_length &&
         a.frozen == b.frozen;
}

// What a reading has decided by now, over all ranks.
std::vector<uint8_t> Decided(const ModelState& state) {
  std::vector<uint8_t> decided(state.layer_count());
  for (const auto& layers : state.ranks) {
    for (size_t l = 0; l < layers.size(); ++l) decided[l] |= layers[l].decided;
  }
  return decided;
}

void Publish(ModelState& state, const Publication& publication) {
  for (const Flip& flip : publication.flips) state.flips[flip.layer] += !flip.first;
  state.published = publication.vector;
  state.published_decided = Decided(state);
  if (state.unit_epoch == ModelState::kUnitPending) state.unit_epoch = publication.vector.epoch;
  state.reissue = false;
}

}  // namespace

const char* Name(SyncState state) {
  switch (state) {
    case SyncState::kNever: return "NEVER";
    case SyncState::kStale: return "STALE";
    case SyncState::kSynced: return "SYNCED";
  }
  return "?";
}

Controller::Controller(ControllerState state, std::unique_ptr<TierPolicy> policy, std::vector<Calibration> calibrations)
    : settings_(state.settings),
      revision_(state.revision),
      max_epoch_(state.max_epoch),
      policy_(std::move(policy)),
      calibrations_(std::move(calibrations)) {
  for (ModelState& model : state.models) {
    max_epoch_ = std::max(max_epoch_, model.published.epoch);
    // A new epoch makes every worker confirm to this process, whatever it heard from the one before.
    model.reissue = true;
    std::string name = model.model;
    models_.emplace(std::move(name), std::move(model));
  }
}

FrameResult Controller::OnFrame(const CanaryFrame& frame, MonotonicTime now) {
  FrameResult result{registry_.Judge(frame, now)};
  if (result.verdict == FrameVerdict::kAccepted) {
    ModelState& state = models_.at(frame.model);  // a registered worker's model is known
    result.verdict = JudgeState(state, frame);
    if (result.verdict == FrameVerdict::kAccepted) {
      const Settings rule = InForce(state.quality.loop, settings_);
      result.readings = Observe(state, frame, rule, *policy_, CalibrationOf(state), now);
      for (size_t i = 0; i < result.readings.size(); ++i) counters_.readings[i] += result.readings[i];
    }
  }
  ++counters_.frames[static_cast<size_t>(result.verdict)];
  return result;
}

FrameVerdict Controller::OnFrame(const QualityFrame& frame, MonotonicTime now) {
  FrameVerdict verdict = registry_.Judge(frame, now);
  if (verdict == FrameVerdict::kAccepted) {
    ModelState& state = models_.at(frame.model);
    if (frame.rank != 0) verdict = FrameVerdict::kOtherShape;  // logits are one for all ranks: the first one speaks
    if (verdict == FrameVerdict::kAccepted && !frame.readings.empty()) {
      const double tokens = Measure(state.quality, frame.readings);
      state.unsaved = true;
      const bool held = settings_.frozen || settings_.recommend_only || PhaseOf(state, settings_) == Phase::kHeld;
      std::optional<LoopStep> step = held ? std::nullopt : StepLoop(state.quality, tokens, settings_, now);
      if (step.has_value() && loop_steps_.size() < kMaxLoopSteps) {
        step->model = frame.model;
        loop_steps_.push_back(*std::move(step));
      }
    }
  }
  ++counters_.frames[static_cast<size_t>(verdict)];
  return verdict;
}

FrameVerdict Controller::JudgeState(const ModelState& state, const CanaryFrame& frame) const {
  if (settings_.frozen || PhaseOf(state, settings_) == Phase::kHeld) return FrameVerdict::kFrozen;
  // A worker may outlive a change of its model's shape by a moment.
  if (frame.ranks != state.ranks.size()) return FrameVerdict::kOtherShape;
  // A worker that never heard a vector measures against the default.
  const bool default_unit = frame.epoch == 0 && settings_.reference_length == TierVector{}.reference_length;
  return frame.epoch >= state.unit_epoch || default_unit ? FrameVerdict::kAccepted : FrameVerdict::kOldUnit;
}

absl::Status Controller::CheckShape(const TierHello& hello, MonotonicTime now) const {
  for (const auto& [name, other] : registry_.workers()) {
    if (other.hello.model != hello.model || name == hello.worker || now - other.last_heard > kSilence) continue;
    if (other.hello.layers != hello.layers || other.hello.ranks != hello.ranks) {
      return absl::FailedPreconditionError(
          absl::StrFormat("worker %s runs model %s with %d layers on %d ranks, but worker %s with %d on %d", hello.worker,
                          hello.model, hello.layers, hello.ranks, name, other.hello.layers, other.hello.ranks));
    }
  }
  return absl::OkStatus();
}

absl::Status Controller::OnHello(const TierHello& hello, MonotonicTime now) {
  ++counters_.hellos;
  const absl::Status status = [&]() -> absl::Status {
    auto it = models_.find(hello.model);
    if (it == models_.end() && models_.size() >= kMaxModels) {
      return absl::ResourceExhaustedError(absl::StrFormat("worker %s: model %s is one more than %d", hello.worker,
                                                          hello.model, kMaxModels));
    }
    const bool reshaped = it != models_.end() &&
                          (it->second.layer_count() != hello.layers || it->second.ranks.size() != hello.ranks);
    if (reshaped) STRIA_RETURN_IF_ERROR(CheckShape(hello, now));
    STRIA_RETURN_IF_ERROR(registry_.Hello(hello, now));
    if (it == models_.end()) {
      it = models_.emplace(hello.model, NewModelState(hello.model, hello.model_name, hello.layers, hello.ranks)).first;
      if (settings_.reference_length != TierVector{}.reference_length) it->second.unit_epoch = ModelState::kUnitPending;
    } else if (reshaped) {
      Reshape(it->second, hello.layers, hello.ranks);
    }
    ModelState& state = it->second;
    state.active = true;
    state.model_name = hello.model_name;
    return absl::OkStatus();
  }();
  if (status.ok()) {
    Hear(*registry_.Find(hello.worker), now);
  } else {
    ++counters_.hellos_refused;
  }
  return status;
}

void Controller::OnAck(const TierAck& ack, MonotonicTime now) {
  if (!registry_.Ack(ack, now)) {
    ++counters_.acks_ignored;
    return;
  }
  ++counters_.acks;
  Hear(*registry_.Find(ack.worker), now);
}

// A worker said what it has applied.
void Controller::Hear(WorkerRecord& worker, MonotonicTime now) {
  ModelState& state = models_.at(worker.hello.model);
  max_epoch_ = std::max(max_epoch_, worker.applied);
  if (worker.applied > state.published.epoch) {
    state.reissue = true;  // it would take our vector for an old one
  } else if (worker.applied < state.published.epoch) {
    // It listens now, so whatever slowed the resending down is over.
    worker.next_send = std::min(worker.next_send, std::max(now, worker.last_send + kResend));
  }
}

absl::StatusOr<Revision> Controller::ProposeRevision(const Settings& after, std::optional<uint64_t> check_revision,
                                                     std::string who, std::string why, double unix_seconds) const {
  if (check_revision.has_value() && *check_revision != revision_) {
    return absl::AbortedError(absl::StrFormat("check_revision is %d, but the newest revision is %d", *check_revision, revision_));
  }
  STRIA_RETURN_IF_ERROR(CheckSettings(after));
  if (after.policy == PolicyKind::kBudget) {
    for (const auto& [model, state] : models_) {
      if (!state.active || CalibrationOf(state) != nullptr) continue;
      return absl::FailedPreconditionError(absl::StrFormat("policy = budget: model %s (%s) has no calibration", state.model_name, model));
    }
  }
  Revision revision{.number = revision_ + (after != settings_),
                    .unix_seconds = unix_seconds,
                    .who = std::move(who),
                    .why = std::move(why),
                    .before = settings_,
                    .after = after};
  return revision;
}

void Controller::Adopt(const Revision& revision, MonotonicTime now) {
  STRIA_CHECK(revision.before == settings_);
  if (revision.number == revision_) return;
  STRIA_CHECK(revision.number == revision_ + 1);
  revision_ = revision.number;
  settings_ = revision.after;
  for (auto& [model, state] : models_) {
    ApplySettings(state, revision.before, revision.after, *policy_, CalibrationOf(state), now);
  }
}

std::vector<TierVector> Controller::Preview(const Settings& after, MonotonicTime now) const {
  std::vector<TierVector> wanted;
  for (const auto& [name, model] : models_) {
    if (!model.active) continue;
    ModelState state = model;
    ApplySettings(state, settings_, after, *policy_, CalibrationOf(state), now);
    wanted.push_back(WantedVector(state, after));
  }
  return wanted;
}

std::vector<Publication> Controller::Draft(double unix_seconds) const {
  std::vector<Publication> drafts;
  uint64_t epoch = max_epoch_;
  for (const auto& [model, state] : models_) {
    if (!state.active) continue;
    TierVector wanted = WantedVector(state, settings_);
    if (state.published.epoch != 0 && !state.reissue && SameButEpoch(wanted, state.published)) continue;
    wanted.epoch = ++epoch;
    Publication draft;
    for (uint32_t l = 0; l < wanted.layers.size(); ++l) {
      const Width from = state.published.layers[l].keys, to = wanted.layers[l].keys;
      if (from == to) continue;
      draft.flips.push_back({wanted.epoch, unix_seconds, model, l, from, to, state.published_decided[l] == 0});
    }
    draft.vector = std::move(wanted);
    drafts.push_back(std::move(draft));
  }
  return drafts;
}

ModelState Controller::AfterCommit(const Publication& publication) const {
  ModelState state = models_.at(publication.vector.model);
  Publish(state, publication);
  return state;
}

void Controller::Commit(const Publication& publication, MonotonicTime now) {
  STRIA_CHECK(publication.vector.epoch > max_epoch_);
  max_epoch_ = publication.vector.epoch;
  for (const Flip& flip : publication.flips) counters_.flips += !flip.first;
  Publish(models_.at(publication.vector.model), publication);
  for (auto& [name, worker] : registry_.workers()) {
    if (worker.hello.model != publication.vector.model) continue;
    worker.next_send = now;
    worker.attempts = 0;
  }
}

std::vector<Delivery> Controller::TakeDue(MonotonicTime now) {
  std::vector<Delivery> due;
  for (auto& [name, worker] : registry_.workers()) {
    const TierVector& vector = models_.at(worker.hello.model).published;
    if (vector.epoch == 0 || worker.applied == vector.epoch || now < worker.next_send) continue;
    due.push_back({name, &vector});
    worker.sent = vector.epoch;
    worker.last_send = now;
    Duration wait = kResend;
    for (uint32_t i = 0; i < worker.attempts && wait < kResendMax; ++i) wait *= 2;
    worker.next_send = now + std::min(wait, kResendMax);
    ++worker.attempts;
    ++counters_.vectors_sent;
  }
  return due;
}

std::vector<const ModelState*> Controller::TakeUnsaved() {
  std::vector<const ModelState*> unsaved;
  for (auto& [model, state] : models_) {
    if (std::exchange(state.unsaved, false)) unsaved.push_back(&state);
  }
  return unsaved;
}

std::vector<LoopStep> Controller::TakeLoopSteps(double unix_seconds) {
  for (LoopStep& step : loop_steps_) step.unix_seconds = unix_seconds;
  return std::exchange(loop_steps_, {});
}

const Calibration* Controller::CalibrationOf(const ModelState& state) const {
  for (const Calibration& calibration : calibrations_) {
    if (calibration.model == state.model && calibration.layers.size() == state.layer_count()) return &calibration;
  }
  return nullptr;
}

SyncState Controller::Sync(const WorkerRecord& worker, MonotonicTime now) const {
  if (worker.applied == 0) return SyncState::kNever;
  const bool current = worker.applied == models_.at(worker.hello.model).published.epoch;
  return current && now - worker.last_heard <= kSilence ? SyncState::kSynced : SyncState::kStale;
}

}  // namespace stria
