#include "services/controller/control_loop.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/codec.h"
#include "services/controller/state_json.h"
#include "services/controller/status_json.h"

namespace stria {

using nlohmann::json;

namespace {

constexpr size_t kMaxUnwritten = 1000;  // steps of loops; while the disk is full they are worth no more memory

}  // namespace

ControlLoop::ControlLoop(OpenedStore opened, EventHub& events, const Clock& clock, SendTiers send,
                         std::vector<Calibration> calibrations)
    : store_(std::move(opened.store)),
      damage_(std::move(opened.damage)),
      brain_(std::move(opened.state), MakeTierPolicy(), std::move(calibrations)),
      events_(events),
      clock_(clock),
      send_(std::move(send)) {
  if (!damage_.empty()) log_.Error("state file was damaged", {{"what", damage_}});
}

void ControlLoop::OnTelemetry(std::string_view bytes) {
  const absl::StatusOr<Telemetry> telemetry = DecodeTelemetry(bytes);
  if (!telemetry.ok()) {
    ++counters_.malformed_telemetry;
    WarnSeldom("telemetry frame refused", std::string(telemetry.status().message()));
    return;
  }
  std::visit([this](const auto& frame) { OnFrame(frame); }, *telemetry);
}

void ControlLoop::OnFrame(const CanaryFrame& frame) {
  const FrameResult result = brain_.OnFrame(frame, clock_.Now());
  if (result.verdict != FrameVerdict::kAccepted) return WarnRefused(frame, result.verdict);
  if (frame.cost_seconds > 0 && frame.cost_seconds < 60) counters_.firing_seconds += frame.cost_seconds;
  if (!events_.firings_watched()) return;
  json firing = ToJson(frame);
  // Of a fleet that fires a thousand times a second nobody can read all averages.
  MonotonicTime& told = smoothed_told_[frame.model];
  if (told == MonotonicTime{} || clock_.Now() - told >= kSmoothedEvery) {
    told = clock_.Now();
    firing["layers"] = SmoothedJson(brain_.models().at(frame.model));
  }
  Announce("firing", std::move(firing));
}

void ControlLoop::OnFrame(const QualityFrame& frame) {
  const FrameVerdict verdict = brain_.OnFrame(frame, clock_.Now());
  if (verdict != FrameVerdict::kAccepted) WarnRefused(frame, verdict);
}

void ControlLoop::WarnRefused(const TelemetryHeader& frame, FrameVerdict verdict) {
  if (verdict == FrameVerdict::kFrozen) return;
  WarnSeldom("telemetry frame refused", absl::StrCat("worker ", frame.worker, ", number ", frame.number, ": ", std::string(Name(verdict))));
}

void ControlLoop::OnTiers(const std::string& peer, std::string_view bytes) {
  absl::StatusOr<ToController> message = DecodeToController(bytes);
  if (!message.ok()) {
    ++counters_.malformed_tiers;
    WarnSeldom("tiers frame refused", std::string(message.status().message()));
    return;
  }
  if (const auto* hello = std::get_if<TierHello>(&*message)) {
    const auto& workers = brain_.registry().workers();
    const auto before = workers.find(hello->worker);
    const bool news = before == workers.end() || before->second.hello.incarnation != hello->incarnation;
    if (absl::Status status = brain_.OnHello(*hello, clock_.Now()); !status.ok()) {
      WarnSeldom("hello refused", std::string(status.message()));
      return;
    }
    peers_[hello->worker] = peer;
    if (news) {
      log_.Info("worker", {{"name", hello->worker}, {"model", hello->model_name}, {"epoch", hello->epoch}, {"http", hello->http}});
    }
  } else if (const auto* ack = std::get_if<TierAck>(&*message)) {
    brain_.OnAck(*ack, clock_.Now());
  } else if (auto& report = std::get<CacheReport>(*message); on_cache_report_ && peers_.contains(report.worker) && peers_[report.worker] == peer) {
    on_cache_report_(std::move(report));
  }
}

absl::Status ControlLoop::AskCache(const std::string& worker, const CacheQuery& query) {
  const auto peer = peers_.find(worker);
  if (peer == peers_.end()) return absl::NotFoundError(absl::StrCat("no worker is called '", worker, "'"));
  if (send_(peer->second, Encode(query))) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("worker ", worker, " cannot be reached"));
}

// A failed write is remembered until one succeeds; what was not written is neither sent nor acknowledged, and tried again.
bool ControlLoop::Stored(absl::Status status) {
  if (!status.ok()) {
    ++counters_.state_errors;
    if (state_status_.ok()) log_.Error("state file", {{"error", std::string(status.message())}});
  } else if (!state_status_.ok()) {
    log_.Info("state file can be written again");
  }
  state_status_ = std::move(status);
  return state_status_.ok();
}

void ControlLoop::Flush() {
  for (const Publication& draft : brain_.Draft(clock_.UnixSeconds())) {
    if (!Stored(store_->CommitEpoch(draft, brain_.AfterCommit(draft), clock_.UnixSeconds()))) break;
    brain_.Commit(draft, clock_.Now());
    if (!events_.watched()) continue;
    json flips = json::array();
    for (const Flip& flip : draft.flips) flips.push_back(ToJson(flip));
    json tiers = ToJson(draft.vector);
    tiers["flips"] = std::move(flips);
    Announce("tiers", std::move(tiers));
  }
  Deliver();
}

void ControlLoop::Deliver() {
  std::map<uint64_t, std::string> encoded;  // by epoch, so that a thousand workers share one encoding
  for (const Delivery& delivery : brain_.TakeDue(clock_.Now())) {
    std::string& frame = encoded[delivery.vector->epoch];
    if (frame.empty()) frame = Encode(*delivery.vector);
    const auto peer = peers_.find(delivery.worker);
    if (peer == peers_.end() || !send_(peer->second, frame)) ++counters_.undelivered;
  }
}

void ControlLoop::Tick() {
  const MonotonicTime now = clock_.Now();
  Flush();
  if (now - last_snapshot_ >= kSnapshotEvery) Save();
  if (now - last_sweep_ >= std::chrono::seconds(10)) {
    last_sweep_ = now;
    brain_.ForgetSilentWorkers(now, kForgetAfter);
    std::erase_if(peers_, [&](const auto& peer) { return !brain_.registry().workers().contains(peer.first); });
  }
  AnnounceWorkers();
}

void ControlLoop::Save() {
  last_snapshot_ = clock_.Now();
  const std::vector<const ModelState*> unsaved = brain_.TakeUnsaved();
  for (LoopStep& step : brain_.TakeLoopSteps(clock_.UnixSeconds())) {
    if (events_.watched()) Announce("target", ToJson(step));
    unwritten_steps_.push_back(std::move(step));
  }
  if (unsaved.empty() && unwritten_steps_.empty()) return;
  if (Stored(store_->SaveModels(unsaved, unwritten_steps_, clock_.UnixSeconds())) || unwritten_steps_.size() > kMaxUnwritten) {
    unwritten_steps_.clear();
  }
}

absl::StatusOr<Revision> ControlLoop::ChangeSettings(const Settings& after, std::optional<uint64_t> check_revision,
                                                     std::string who, std::string why, bool dry_run) {
  STRIA_ASSIGN_OR_RETURN(Revision revision, brain_.ProposeRevision(after, check_revision, std::move(who), std::move(why),
                                                                   clock_.UnixSeconds()));
  if (dry_run || revision.number == brain_.revision()) return revision;
  if (!Stored(store_->AppendRevision(revision))) {
    return absl::UnavailableError(absl::StrCat("nothing was changed: ", std::string(state_status_.message())));
  }
  brain_.Adopt(revision, clock_.Now());
  log_.Info("revision", {{"number", revision.number},
                         {"who", revision.who},
                         {"why", revision.why},
                         {"after", Dump(ToJson(revision.after))}});
  Announce("revision", ToJson(revision));
  Flush();
  return revision;
}

void ControlLoop::AnnounceWorkers() {
  if (!events_.watched()) {
    announced_.clear();
    return;
  }
  std::map<std::string, std::string> states;
  for (const auto& [name, worker] : brain_.registry().workers()) {
    const char* state = Name(brain_.Sync(worker, clock_.Now()));
    states[name] = absl::StrCat(state, " ", worker.hello.incarnation);
    if (announced_[name] == states[name]) continue;
    Announce("worker", {{"worker", name},
                        {"state", state},
                        {"incarnation", worker.hello.incarnation},
                        {"epoch_applied", worker.applied},
                        {"epoch_sent", worker.sent}});
  }
  announced_ = std::move(states);
}

// What comes from outside must not fill the log: one line a second, with the number that it stands for.
void ControlLoop::WarnSeldom(std::string_view what, std::string_view why) {
  if (clock_.Now() - last_warning_ < std::chrono::seconds(1)) {
    ++warnings_held_back_;
    return;
  }
  last_warning_ = clock_.Now();
  log_.Warning(what, {{"why", why}, {"held_back", std::exchange(warnings_held_back_, 0)}});
}

void ControlLoop::Announce(std::string name, json data) {
  if (!data.contains("unix_seconds")) data["unix_seconds"] = clock_.UnixSeconds();
  events_.Send({std::move(name), std::move(data), brain_.revision()});
}

}  // namespace stria
