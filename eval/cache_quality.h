// What a cache costs in quality: how far its next-token distributions are from those with an FP16 cache, on
// the same text, through decode steps.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/teacher_forcing.h"

namespace stria {

struct CacheQuality {
  std::string name;
  double bits = 16;       // mean width of keys and values in the plan, scales, first page and tail aside
  double kl = 0;          // mean over all positions of Σ p ln(p / q), nats; p with the FP16 cache
  double kl_deep = 0;     // the same over positions that see at least ¾ of their tokens in quantised pages
  double kl_p99 = 0;      // over all positions
  double agreement = 0;   // share of positions whose best token is the same
  double perplexity = 0;  // of the text under this cache
  std::vector<double> page_kl;  // mean of each 64 positions, text after text: alike for all caches, so they can be paired
};

// Results of `variants`, in order. The FP16 cache that all are compared with runs beside them.
absl::StatusOr<std::vector<CacheQuality>> MeasureCacheQuality(Transformer& transformer,
                                                              const TeacherForcingOptions& options,
                                                              std::span<const std::vector<int32_t>> texts,
                                                              std::span<const CacheVariant> variants);

// Mean of the differences a − b of paired samples and half its 95 % interval, samples taken as independent.
struct PairedDifference {
  double mean = 0, half_width = 0;
};
PairedDifference Compare(std::span<const double> a, std::span<const double> b);

}  // namespace stria
