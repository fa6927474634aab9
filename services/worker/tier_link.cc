#include "services/worker/tier_link.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/codec.h"

namespace stria {

TierLink::TierLink(const WorkerIdentity& identity, uint32_t layers, FrameChannel& channel, Engine& engine, const Clock& clock,
                   Duration hello_every)
    : channel_(channel), engine_(engine), clock_(clock), hello_every_(hello_every), next_hello_(clock.Now()) {
  hello_.worker = identity.name;
  hello_.incarnation = identity.incarnation;
  hello_.model = identity.model;
  hello_.model_name = identity.model_name;
  hello_.layers = layers;
  hello_.http = identity.http;
}

void TierLink::TakeAndApply() {
  std::optional<TierVector> newest;
  while (const std::optional<std::string> frame = channel_.Receive()) Take(*frame, newest);
  if (!newest) return;
  const absl::Status status = engine_.ApplyTiers(*newest);
  if (!status.ok()) return Refuse(std::string(status.message()));
  ++stats_.applied;
  note_ = absl::StrCat("tier epoch ", newest->epoch, " in force");
  Acknowledge();
}

void TierLink::Take(const std::string& frame, std::optional<TierVector>& newest) {
  absl::StatusOr<FromController> message = DecodeFromController(frame);
  if (!message.ok()) return Refuse(std::string(message.status().message()));
  if (const auto* query = std::get_if<CacheQuery>(&*message)) return Answer(*query);
  auto* tiers = std::get_if<TierVector>(&*message);
  if (tiers->model != hello_.model) return Refuse(absl::StrCat("tier vector of model ", tiers->model));
  if (tiers->layers.size() != hello_.layers) {
    return Refuse(absl::StrCat("tier vector of ", tiers->layers.size(), " layers, the model has ", hello_.layers));
  }
  const uint64_t in_force = engine_.tiers().epoch;
  if (tiers->epoch > in_force) {
    if (!newest || tiers->epoch > newest->epoch) newest = std::move(*tiers);
    return;
  }
  // Sent again because the acknowledgement was lost; or by a controller that must hear of a newer epoch.
  if (tiers->epoch < in_force) ++stats_.stale;
  Acknowledge();
}

void TierLink::Refuse(std::string why) {
  ++stats_.refused_frames;
  note_ = absl::StrCat("refused a tier frame: ", why);
}

// Lost when the socket refuses it: who asked gives up.
void TierLink::Answer(const CacheQuery& query) {
  CacheReport report = engine_.ReportCache(query.sequence);
  report.worker = hello_.worker;
  report.incarnation = hello_.incarnation;
  report.number = query.number;
  channel_.Send(Encode(report));
}

// When the socket refuses it, the next hello carries the epoch too.
void TierLink::Acknowledge() {
  channel_.Send(Encode(TierAck{hello_.worker, hello_.incarnation, engine_.tiers().epoch}));
}

void TierLink::Tick() {
  const MonotonicTime now = clock_.Now();
  if (now < next_hello_) return;
  next_hello_ = now + hello_every_;
  hello_.epoch = engine_.tiers().epoch;
  channel_.Send(Encode(hello_));
}

std::string TierLink::TakeNote() { return std::exchange(note_, {}); }

}  // namespace stria
