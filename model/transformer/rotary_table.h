// Cosines and sines of the rotary position embedding (Su et al., RoFormer, 2021), stretched as the model asks.
#pragma once

#include <vector>

#include "model/model_config.h"

namespace stria {

// Radians per position of each rotating pair, [rope_dims / 2]: base^(-2i / rope_dims), then
// - linear: divided by `factor` (Chen et al., Position Interpolation, 2023);
// - llama3: by wavelength, as Llama 3.1's reference code and transformers' `_compute_llama3_parameters` do, or divided by the
//   file's own divisors;
// - yarn: NTK-by-parts interpolation (Peng et al., YaRN, 2023, section 3.2).
std::vector<double> RotaryFrequencies(const ModelConfig& config);

// What cosines and sines are multiplied by. YaRN (section 3.3): (1 + 0.1 ln factor) · attention_factor; otherwise 1.
double RotaryMagnitude(const RopeScaling& scaling);

// Positions [0, context_length), computed in double.
class RotaryTable {
 public:
  explicit RotaryTable(const ModelConfig& config);

  int pairs() const { return pairs_; }
  const float* Cosines(int position) const { return values_.data() + static_cast<size_t>(position) * 2 * pairs_; }
  const float* Sines(int position) const { return Cosines(position) + pairs_; }

 private:
  int pairs_;
  std::vector<float> values_;  // [context_length, 2, pairs]
};

}  // namespace stria
