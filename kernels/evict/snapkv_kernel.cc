// Scores are computed twice, once for the softmax's sum and once for the votes: keeping them would take a
// number for every (query, key), and the second sweep splits over keys, so threads never add to one score.
#include "kernels/evict/snapkv_kernel.h"

namespace stria::STRIA_SIMD {
namespace {

constexpr int kQueries = kObservationQueries;

// Scores of kQueries queries against one key.
inline void Dot(const float* q, const Half* key, int dim, float* scores) {
  F sum[kQueries];
  for (F& s : sum) s = Set(0.0f);
  for (int c = 0; c < dim; c += kLanes) {
    const F x = LoadHalf(key + c);
    for (int g = 0; g < kQueries; ++g) sum[g] = Fma(x, Load(q + g * dim + c), sum[g]);
  }
  StoreSums4(scores, sum[0], sum[1], sum[2], sum[3]);
}

// 2^x for each of kQueries numbers.
inline void Exp2All(const float* x, float* out) {
  alignas(64) float padded[kLanes] = {}, powers[kLanes];
  for (int first = 0; first < kQueries; first += kLanes) {
    const int count = kQueries - first < kLanes ? kQueries - first : kLanes;
    for (int i = 0; i < count; ++i) padded[i] = x[first + i];
    Store(powers, Exp2(Load(padded)));
    for (int i = 0; i < count; ++i) out[first + i] = powers[i];
  }
}

}  // namespace

void ObservationNormalisers(const ObservationBlock& block, float* max, float* sum) {
  for (int g = 0; g < kQueries; ++g) {
    max[g] = -__builtin_inff();
    sum[g] = 0.0f;
  }
  for (int t = block.key_begin; t < block.key_end; ++t) {
    float score[kQueries], shifted[kQueries], power[kQueries];
    Dot(block.q, block.keys + size_t{1} * t * block.head_dim, block.head_dim, score);
    bool larger = false;
    for (int g = 0; g < kQueries; ++g) larger |= score[g] > max[g];
    if (larger) {  // rare after the first few keys
      for (int g = 0; g < kQueries; ++g) {
        const float next = score[g] > max[g] ? score[g] : max[g];
        shifted[g] = max[g] - next;
        max[g] = next;
      }
      Exp2All(shifted, power);
      for (int g = 0; g < kQueries; ++g) sum[g] *= power[g];
    }
    for (int g = 0; g < kQueries; ++g) shifted[g] = score[g] - max[g];
    Exp2All(shifted, power);
    for (int g = 0; g < kQueries; ++g) sum[g] += power[g];
  }
}

void ObservationVotes(const ObservationBlock& block, int queries, const float* max, const float* inverse,
                      float* scores) {
  for (int first = 0; first < queries; first += kQueries) {
    const float* q = block.q + size_t{1} * first * block.head_dim;
    for (int t = block.key_begin; t < block.key_end; ++t) {
      float score[kQueries], power[kQueries];
      Dot(q, block.keys + size_t{1} * t * block.head_dim, block.head_dim, score);
      for (int g = 0; g < kQueries; ++g) score[g] -= max[first + g];
      Exp2All(score, power);
      float votes = 0.0f;
      for (int g = 0; g < kQueries; ++g) votes += power[g] * inverse[first + g];
      scores[t] += votes;
    }
  }
}

}  // namespace stria::STRIA_SIMD
