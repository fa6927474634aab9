// Cosines and sines of the rotary position embedding (Su et al., RoFormer, 2021), stretched as the model
// asks.
#pragma once

#include <vector>

#include "model/model_config.h"

namespace stria {

// Radians per position of each rotating pair, [rope_dims / 2]: base^(-2i / rope_dims), then
// - linear: divided by `factor` (Chen et al., Position Interpolation, 2023);
// - llama3: by wavelength, as Llama 3.1's reference code and transformers' `_compute_llama3_parameters` do,
// or divided by the
//   file's own divisors;
// - yarn: NTK-by-parts interpolation (Peng et al., YaRN, 2023, section 3.2).
std::vector<double> RotaryFrequencies(const ModelConfig& config);

// The angles of positions [0, context_length). Kept as two small tables, of positions' high and low halves,
// whose entries are multiplied as complex numbers: a long context costs no memory to speak of. Cosines and
// sines come multiplied by the model's attention_factor (YaRN, section 3.3; 1 otherwise).
class RotaryTable {
 public:
  explicit RotaryTable(const ModelConfig& config);

  int pairs() const { return pairs_; }

  // cosines, sines [pairs] of position · frequency.
  void Angles(int position, float* cosines, float* sines) const;

 private:
  int pairs_;
  int fine_bits_;              // position = (coarse << fine_bits_) + fine
  std::vector<float> fine_;    // [1 << fine_bits, 2, pairs]: cosines, then sines, of each fine position
  std::vector<float> coarse_;  // [coarse positions, 2, pairs]
};

}  // namespace stria
