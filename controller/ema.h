// Exponential moving average whose first observation is its first value, so nothing is learnt from an invented start.
#pragma once

#include <cstdint>

namespace stria {

class Ema {
 public:
  Ema() = default;
  Ema(double value, uint64_t count) : value_(value), count_(count) {}  // from a snapshot

  void Observe(double x, double alpha) {
    value_ = count_ == 0 ? x : value_ + alpha * (x - value_);
    ++count_;
  }
  // For a change of unit: readings from now on are `factor` times what they were.
  void Scale(double factor) { value_ *= factor; }

  bool valid() const { return count_ > 0; }
  double value() const { return value_; }
  uint64_t count() const { return count_; }
  friend bool operator==(const Ema&, const Ema&) = default;

 private:
  double value_ = 0;
  uint64_t count_ = 0;
};

}  // namespace stria
