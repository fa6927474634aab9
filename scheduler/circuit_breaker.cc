#include "scheduler/circuit_breaker.h"

#include <algorithm>
#include <cmath>

namespace stria {
namespace {

constexpr double kLossesToTrip = 2.5;  // the third in quick succession: the earlier ones have faded a little
constexpr uint32_t kErrorsToTrip = 5;
constexpr Duration kHalfLife = std::chrono::minutes(1);
constexpr Duration kFirstBackoff = std::chrono::seconds(2);
constexpr Duration kMaxBackoff = std::chrono::minutes(5);
constexpr Duration kForgiven = std::chrono::minutes(15);  // without a trip: the next is a first one again

}  // namespace

double CircuitBreaker::Losses(MonotonicTime now) const {
  return losses_ * std::exp2(-std::chrono::duration<double>(now - last_loss_) / kHalfLife);
}

void CircuitBreaker::OnLost(MonotonicTime now) {
  losses_ = Losses(now) + 1;
  last_loss_ = now;
  if (tripped_ || losses_ >= kLossesToTrip) Trip(now);
}

void CircuitBreaker::OnError(MonotonicTime now) {
  if (++errors_ >= kErrorsToTrip || tripped_) Trip(now);
}

void CircuitBreaker::OnSuccess(MonotonicTime now) {
  errors_ = 0;
  if (state(now) != State::kTrial) return;  // one of those that were running when it opened
  tripped_ = false;
  losses_ = 0;
}

void CircuitBreaker::Trip(MonotonicTime now) {
  if (state(now) == State::kOpen) return;  // the same failure, told by another of its sequences
  const bool again = trips_ > 0 && now - open_until_ < kForgiven;
  backoff_ = again ? std::min(2 * backoff_, kMaxBackoff) : kFirstBackoff;
  open_until_ = now + backoff_;
  tripped_ = true;
  errors_ = 0;
  ++trips_;
}

CircuitBreaker::State CircuitBreaker::state(MonotonicTime now) const {
  if (!tripped_) return State::kClosed;
  return now < open_until_ ? State::kOpen : State::kTrial;
}

Duration CircuitBreaker::remaining(MonotonicTime now) const {
  return state(now) == State::kOpen ? open_until_ - now : Duration::zero();
}

bool CircuitBreaker::clean(MonotonicTime now) const {
  return !tripped_ && errors_ == 0 && Losses(now) < 0.01 && (trips_ == 0 || now - open_until_ >= kForgiven);
}

const char* Name(CircuitBreaker::State state) {
  switch (state) {
    case CircuitBreaker::State::kClosed: return "closed";
    case CircuitBreaker::State::kOpen: return "open";
    case CircuitBreaker::State::kTrial: return "trial";
  }
  return "";
}

}  // namespace stria
