// What the fast attention paths add to a width's own error: both in next-token KL, on real activations through decode steps.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "base/width.h"
#include "kernels/target.h"
#include "model/transformer/transformer.h"

namespace stria {

struct KernelQuality {
  Width width = Width::kFp16;
  // Mean nats of Σ p ln(p / q) over the positions.
  double width_kl = 0;   // FP16 against this width, both attended in double
  double kernel_kl = 0;  // this width attended in double against the same by `target`
  double both_kl = 0;    // FP16 in double against this width by `target`
};

// One result for each width, FP16 first. All caches run side by side over the same texts, first page FP16.
absl::StatusOr<std::vector<KernelQuality>> MeasureKernelQuality(Transformer& transformer, Target target, int threads,
                                                                const std::vector<std::vector<int32_t>>& texts);

}  // namespace stria
