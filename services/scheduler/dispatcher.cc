#include "services/scheduler/dispatcher.h"

#include <chrono>
#include <utility>
#include <variant>

#include "proto/codec.h"

namespace stria {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr size_t kMaxPeers = 4096;

}  // namespace

Dispatcher::Dispatcher(boost::asio::io_context& io, std::unique_ptr<BusSocket> socket, SchedulerOptions options, const Clock& clock,
                       const Logger& log)
    : clock_(clock),
      log_(log),
      brain_(options),
      link_(io, std::move(socket), [this](PeerFrame frame) { OnFrame(std::move(frame)); }),
      timer_(io) {
  Tick();
}

absl::Status Dispatcher::Submit(std::vector<SequenceRequest> requests, SequenceOwner& owner,
                                const std::function<void(const std::vector<uint64_t>&)>& named) {
  const absl::StatusOr<std::vector<uint64_t>> ids = brain_.Submit(std::move(requests), Now());
  if (ids.ok()) {
    for (const uint64_t id : *ids) owners_[id] = &owner;
    named(*ids);
  }
  Deliver();
  return ids.status();
}

void Dispatcher::Cancel(uint64_t id) {
  brain_.Cancel(id, Now());
  Deliver();
}

void Dispatcher::Release(const std::vector<uint64_t>& ids) {
  for (const uint64_t id : ids) {
    if (owners_.erase(id) > 0) brain_.Cancel(id, Now());
  }
  Deliver();
}

void Dispatcher::Learn(const std::string& worker, uint64_t incarnation, const std::string& peer) {
  if (peers_.size() >= kMaxPeers) peers_.clear();  // they are learnt again with the next status
  auto& known = peers_[worker];
  if (incarnation >= known.first) known = {incarnation, peer};
}

void Dispatcher::OnFrame(PeerFrame frame) {
  absl::StatusOr<ToScheduler> message = DecodeToScheduler(frame.frame);
  if (!message.ok()) {
    if (bad_frames_++ == 0) log_.Warning("a worker's message is malformed", {{"why", std::string(message.status().message())}});
    return;
  }
  const MonotonicTime now = Now();
  if (auto* outputs = std::get_if<StepOutputs>(&*message)) {
    brain_.OnOutputs(std::move(*outputs), now);
  } else if (const auto* status = std::get_if<WorkerStatus>(&*message)) {
    Learn(status->worker, status->incarnation, frame.peer);
    brain_.OnStatus(*status, now);
  } else {
    const WorkerHello& hello = std::get<WorkerHello>(*message);
    Learn(hello.worker, hello.incarnation, frame.peer);
    brain_.OnHello(hello, now);
  }
  Deliver();
}

void Dispatcher::Deliver() {
  Effects effects = brain_.TakeEffects();
  for (const auto& [worker, command] : effects.commands) {
    const auto peer = peers_.find(worker);
    if (peer == peers_.end()) continue;
    // What is not sent is sent again later by the brain, which waits for its effect.
    const SendResult sent = std::visit([&](const auto& message) { return link_.SendTo(peer->second.second, Encode(message)); }, command);
    if (sent == SendResult::kNoPeer) brain_.OnUnreachable(worker, Now());
  }
  const MonotonicTime now = Now();
  for (SequenceEvent& event : effects.events) {
    const auto owner = owners_.find(event.id);
    if (owner == owners_.end()) continue;
    SequenceOwner& hears = *owner->second;
    if (event.finished) owners_.erase(owner);
    hears.OnSequence(std::move(event), now);
  }
  for (const std::string& note : effects.notes) log_.Info(note);
}

void Dispatcher::Tick() {
  brain_.Tick(Now());
  Deliver();
  timer_.expires_after(kTick);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) Tick();
  });
}

}  // namespace stria
