// Sums what shadows score, by length of context, until a frame takes it.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "proto/telemetry.h"

namespace stria {

class QualityTally {
 public:
  // One position of a context of `length` tokens, at least 1; kl in nats.
  void Add(uint32_t length, double kl) {
    QualityReading& reading = by_length_[std::bit_floor(length)];
    reading.length = std::bit_floor(length);
    ++reading.tokens;
    reading.kl += kl;
    ++tokens_;
  }
  uint64_t tokens() const { return tokens_; }
  std::vector<QualityReading> Take() {
    std::vector<QualityReading> taken;
    for (const auto& [length, reading] : std::exchange(by_length_, {})) taken.push_back(reading);
    tokens_ = 0;
    return taken;
  }

 private:
  std::map<uint32_t, QualityReading> by_length_;
  uint64_t tokens_ = 0;
};

}  // namespace stria
