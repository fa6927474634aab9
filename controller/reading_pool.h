// Makes the workers of one model count as one: a round is each live worker's latest mean, at most one round a second, so that a
// fleet smooths over as much time as a single worker does.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "proto/telemetry.h"

namespace stria {

class ReadingPool {
 public:
  static constexpr Duration kRound = std::chrono::seconds(1);

  // Takes one frame's sound readings, each (layer, kind) once. Gives the means of a round when one is full, else nothing. The
  // first frame of a rank is a round of its own: nobody has to wait for the first widths.
  std::optional<std::vector<LayerReading>> Add(const std::string& worker, uint32_t rank, std::span<const LayerReading> readings,
                                               MonotonicTime now);

 private:
  using Place = std::pair<uint32_t, CacheKind>;  // layer, kind
  struct Sum {
    std::array<double, 3> kl{};
    uint32_t count = 0;
  };
  struct WorkerMeans {
    MonotonicTime last_frame{};
    bool fresh = false;  // the sums are of the round that is being filled, not of an older one
    std::map<Place, Sum> sums;
  };
  struct Rank {
    bool begun = false;
    MonotonicTime last_round{};
    std::map<std::string, WorkerMeans> workers;
  };

  std::map<uint32_t, Rank> ranks_;
};

}  // namespace stria
