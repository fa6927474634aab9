#include "controller/reading_pool.h"

#include "controller/worker_registry.h"

namespace stria {

std::optional<std::vector<LayerReading>> ReadingPool::Add(const std::string& worker, uint32_t rank_number,
                                                          std::span<const LayerReading> readings, MonotonicTime now) {
  Rank& rank = ranks_[rank_number];
  WorkerMeans& mine = rank.workers[worker];
  if (!mine.fresh) mine.sums.clear();
  mine.fresh = true;
  mine.last_frame = now;
  for (const LayerReading& reading : readings) {
    Sum& sum = mine.sums[{reading.layer, reading.kind}];
    ++sum.count;
    for (size_t i = 0; i < sum.kl.size(); ++i) sum.kl[i] += reading.kl[i];
  }
  if (rank.begun && now - rank.last_round < kRound) return std::nullopt;
  rank.begun = true;
  rank.last_round = now;
  std::erase_if(rank.workers, [&](const auto& entry) { return now - entry.second.last_frame > kSilence; });
  std::map<Place, Sum> round;
  for (auto& [name, means] : rank.workers) {
    means.fresh = false;
    for (const auto& [place, sum] : means.sums) {
      Sum& total = round[place];
      ++total.count;
      for (size_t i = 0; i < total.kl.size(); ++i) total.kl[i] += sum.kl[i] / sum.count;
    }
  }
  std::vector<LayerReading> means;
  for (const auto& [place, total] : round) {
    LayerReading& mean = means.emplace_back(LayerReading{.layer = place.first, .kind = place.second, .kl = {}});
    for (size_t i = 0; i < total.kl.size(); ++i) mean.kl[i] = static_cast<float>(total.kl[i] / total.count);
  }
  return means;
}

}  // namespace stria
