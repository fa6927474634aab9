// Whether a worker that keeps failing is used. Lost workers weigh until they fade (half in a minute), errors until a sequence ends
// well. At three losses, or five errors in a row, the worker is held back: two seconds the first time, twice as long each time
// after, five minutes at most. Then it is on trial: one sequence at a time, whose end decides.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace stria {

class CircuitBreaker {
 public:
  enum class State { kClosed, kOpen, kTrial };

  // The worker was lost while it had sequences.
  void OnLost(MonotonicTime now);
  // A sequence ended with an error of the worker's.
  void OnError(MonotonicTime now);
  // A sequence ended well.
  void OnSuccess(MonotonicTime now);

  State state(MonotonicTime now) const;
  Duration remaining(MonotonicTime now) const;  // while open
  uint32_t trips() const { return trips_; }     // times that it opened
  // Nothing to remember: as good as new.
  bool clean(MonotonicTime now) const;

 private:
  double Losses(MonotonicTime now) const;
  void Trip(MonotonicTime now);

  double losses_ = 0;          // at last_loss_
  MonotonicTime last_loss_;
  uint32_t errors_ = 0;        // in a row
  bool tripped_ = false;       // open, or on trial since open_until_
  MonotonicTime open_until_;   // of the latest trip
  Duration backoff_{};         // of the latest trip
  uint32_t trips_ = 0;
};

const char* Name(CircuitBreaker::State state);

}  // namespace stria
