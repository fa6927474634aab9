// What sharing a prefix costs in quality: a prompt whose beginning is read from pages instead of being computed
// attends to what those pages made of it, where alone it attends in full precision.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/width.h"
#include "model/transformer/transformer.h"

namespace stria {

struct PrefixQuality {
  Width width = Width::kFp16;
  // Mean nats of Σ p ln(p / q) over the tokens behind the prompt.
  double width_kl = 0;    // FP16 against this width, nothing shared: what the width costs
  double sharing_kl = 0;  // this width, nothing shared against shared: what sharing adds
  double both_kl = 0;     // FP16, nothing shared, against this width shared
};

struct PrefixQualityOptions {
  int threads = 1;
  // Whether the shared pages were sealed while tokens were decoded, as an answer's are, or in a prompt.
  bool decoded = false;
};

// The first half of each text is the shared prefix, a quarter follows in the prompt, and the last quarter is
// forced through decode steps, where next tokens are compared. Texts are at least 256 tokens long and fit a
// multiple of 256 of them into these parts.
absl::StatusOr<std::vector<PrefixQuality>> MeasurePrefixQuality(Transformer& transformer,
                                                                const PrefixQualityOptions& options,
                                                                const std::vector<std::vector<int32_t>>& texts,
                                                                const std::vector<Width>& widths);

}  // namespace stria
