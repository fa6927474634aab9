// One pass over the ring: each key is loaded once, quantised at the three widths in registers, and dotted as
// it is and as its codes with every query head. With x = middle + scale · (code − centre), the dot product of
// a quantised key is Σ q (middle − centre · scale) + Σ (q scale) code: what does not depend on the key is
// added once.
#include "kernels/canary/canary_kernel.h"

#include <cmath>

#include "kernels/format/quantizer_simd.h"
#include "kernels/simd/for_heads.h"

namespace stria::STRIA_SIMD {
namespace {

constexpr int kWidths = 3;
constexpr int kVariants = kWidths + 1;  // the three widths, and the key as it is

// Per channel, for each width.
struct alignas(64) ChannelQuantizers {
  float scale[kWidths][kMaxHeadDim];
  float middle[kMaxHeadDim];  // the same at all widths
  float inverse[kWidths][kMaxHeadDim];

  ChannelQuantizers(const Half* keys, int valid, int dim) {
    for (int first = 0; first < dim; first += 16) {
      RangeVector ranges[kRowVectors];
      ChannelRanges(keys + first, valid, dim, ranges);
      for (int v = 0; v < kRowVectors; ++v) {
        const int c = first + v * kLanes;
        for (int w = 0; w < kWidths; ++w) {
          Half stored_scale[kLanes], stored_middle[kLanes];
          const auto q = QuantizerVector::Make(ranges[v].min, ranges[v].max, ranges[v].bad, 2 << w, stored_scale,
                                               stored_middle);
          Store(scale[w] + c, q.scale);
          Store(inverse[w] + c, q.inverse);
          Store(middle + c, q.middle);
        }
      }
    }
  }
};

struct alignas(64) Scores {
  float of[kVariants][kPageTokens];
};

// scores[g].of[variant][t], natural logarithm's softmax units.
template <int G>
void ScoreRing(const Half* keys, int valid, int dim, const ChannelQuantizers& quantizers, const float* q,
               float q_scale, Scores* scores) {
  alignas(64) float folded[kVariants][G][kMaxHeadDim];
  F base[kVariants][G];  // adds up to what does not depend on the key
  for (int g = 0; g < G; ++g) {
    for (int w = 0; w < kWidths; ++w) {
      const F centre = Set(static_cast<float>((1 << (2 << w)) - 1) / 2);
      base[w][g] = Set(0.0f);
      for (int c = 0; c < dim; c += kLanes) {
        const F x = Load(q + g * dim + c) * Set(q_scale), scale = Load(quantizers.scale[w] + c);
        Store(folded[w][g] + c, x * scale);
        base[w][g] = Fma(x, Load(quantizers.middle + c) - centre * scale, base[w][g]);
      }
    }
    for (int c = 0; c < dim; c += kLanes) Store(folded[kWidths][g] + c, Load(q + g * dim + c) * Set(q_scale));
    base[kWidths][g] = Set(0.0f);
  }
  for (int t = 0; t < valid; ++t) {
    F sum[kVariants][G];
    for (int v = 0; v < kVariants; ++v) {
      for (int g = 0; g < G; ++g) sum[v][g] = base[v][g];
    }
    for (int c = 0; c < dim; c += kLanes) {
      const F x = LoadHalf(keys + t * dim + c), middle = Load(quantizers.middle + c);
      // One variant after the other: the sums alone fill the registers.
      const auto add = [&](int v, F value) __attribute__((always_inline)) {
        for (int g = 0; g < G; ++g) sum[v][g] = Fma(value, Load(folded[v][g] + c), sum[v][g]);
      };
      add(0, ToFloat(CodeOf<2>(x, middle, Load(quantizers.inverse[0] + c))));
      add(1, ToFloat(CodeOf<4>(x, middle, Load(quantizers.inverse[1] + c))));
      add(2, ToFloat(CodeOf<8>(x, middle, Load(quantizers.inverse[2] + c))));
      add(kWidths, x);
    }
    for (int g = 0; g < G; ++g) {
      float sums[kVariants];
      StoreSums4(sums, sum[0][g], sum[1][g], sum[2][g], sum[3][g]);
      for (int v = 0; v < kVariants; ++v) scores[g].of[v][t] = sums[v];
    }
  }
  for (int g = 0; g < G; ++g) {
    for (int v = 0; v < kVariants; ++v) {
      for (int t = valid; t < kPageTokens; ++t)
        scores[g].of[v][t] = -1e30f;  // weighs nothing, differs by nothing
    }
  }
}

// KL(softmax(exact) ‖ softmax(other)). With p the first softmax and e = (exact − other) less its mean under
// p, this is log(1 + Σ p (exp(−e) − 1 + e)): no large terms cancel, so small readings keep their digits.
float Divergence(const float* p, const float* exact, const float* other) {
  F mean = Set(0.0f);
  for (int t = 0; t < kPageTokens; t += kLanes)
    mean = Fma(Load(p + t), Load(exact + t) - Load(other + t), mean);
  const F shift = Set(ReduceAdd(mean)), one = Set(1.0f);
  F sum = Set(0.0f);
  for (int t = 0; t < kPageTokens; t += kLanes) {
    const F e = Load(exact + t) - Load(other + t) - shift;
    sum = Fma(Load(p + t), (Exp2(e * Set(-1.44269504f)) - one) + e, sum);
  }
  return log1pf(ReduceAdd(sum));
}

}  // namespace

void CanaryReading(const AttentionShape& shape, const Half* key_ring, int valid, const float* q,
                   float q_scale, float* out) {
  const int dim = shape.head_dim, group = shape.heads / shape.kv_heads;
  float sums[kWidths] = {};
  for (int h = 0; h < shape.kv_heads; ++h) {
    const Half* keys = key_ring + h * kPageTokens * dim;
    const ChannelQuantizers quantizers(keys, valid, dim);
    ForHeads<3>(group, [&]<int G>(int first) {
      Scores scores[G];
      ScoreRing<G>(keys, valid, dim, quantizers, q + (h * group + first) * dim, q_scale, scores);
      for (int g = 0; g < G; ++g) {
        const float* exact = scores[g].of[kWidths];
        F largest = Load(exact), total = Set(0.0f);
        for (int t = kLanes; t < kPageTokens; t += kLanes) largest = Max(largest, Load(exact + t));
        const F max = Set(ReduceMax(largest));
        alignas(64) float p[kPageTokens];
        for (int t = 0; t < kPageTokens; t += kLanes) {
          const F x = Exp2((Load(exact + t) - max) * Set(1.44269504f));
          Store(p + t, x);
          total = total + x;
        }
        const F inverse = Set(1.0f / ReduceAdd(total));
        for (int t = 0; t < kPageTokens; t += kLanes) Store(p + t, Load(p + t) * inverse);
        for (int w = 0; w < kWidths; ++w) sums[w] += Divergence(p, exact, scores[g].of[w]);
      }
    });
  }
  for (int w = 0; w < kWidths; ++w) out[w] = sums[w] / static_cast<float>(shape.heads);
}

}  // namespace stria::STRIA_SIMD
