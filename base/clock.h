// Time as an argument: brains take a Clock, so tests decide what time it is.
#pragma once

#include <chrono>

namespace stria {

using MonotonicTime = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

class Clock {
 public:
  virtual ~Clock() = default;
  // Never goes back, not even when the wall clock does: every timeout and every rule uses this one.
  virtual MonotonicTime Now() const = 0;
  // Seconds since the Unix epoch, for people to read (revisions, OpenAI's `created`). Decides nothing.
  virtual double UnixSeconds() const = 0;
};

// The machine's clocks. Lives for the whole process.
const Clock& SystemClock();

class FakeClock final : public Clock {
 public:
  MonotonicTime Now() const override { return now_; }
  double UnixSeconds() const override { return unix_seconds_; }
  void Advance(Duration by) {
    now_ += by;
    unix_seconds_ += std::chrono::duration<double>(by).count();
  }
  // A wall clock that an administrator or NTP moves: must change no decision.
  void JumpWallClock(double seconds) { unix_seconds_ += seconds; }

 private:
  MonotonicTime now_{std::chrono::hours(1)};
  double unix_seconds_ = 1.7e9;
};

}  // namespace stria
