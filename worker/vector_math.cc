#include "worker/vector_math.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/vector_math.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After foreach_target.h and highway.h.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stria::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;

inline Vector Larger(Vector a, Vector b) { return hn::IfThenElse(hn::Gt(b, a), b, a); }  // a if b is NaN

float MaxOfImpl(const float* values, size_t count) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const Vector least = hn::Set(d, -std::numeric_limits<float>::infinity());
  Vector best0 = least, best1 = least, best2 = least, best3 = least;
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    best0 = Larger(best0, hn::LoadU(d, values + i));
    best1 = Larger(best1, hn::LoadU(d, values + i + lanes));
    best2 = Larger(best2, hn::LoadU(d, values + i + 2 * lanes));
    best3 = Larger(best3, hn::LoadU(d, values + i + 3 * lanes));
  }
  float best = hn::GetLane(hn::MaxOfLanes(d, Larger(Larger(best0, best1), Larger(best2, best3))));
  for (; i < count; ++i) best = values[i] > best ? values[i] : best;
  return best;
}

// hn::Exp is only good where the result is a normal number: below −87 it is 0 to anyone who adds it to 1. NaN
// is 0 too.
inline Vector Weight(Tag d, Vector value, Vector best, Vector scale) {
  const Vector x = hn::Mul(hn::Sub(value, best), scale);
  const Vector lowest = hn::Set(d, -87.0f);
  return hn::IfThenElseZero(hn::Gt(x, lowest), hn::Exp(d, Larger(lowest, x)));
}

double SumExpImpl(const float* values, size_t count, float best, float scale, double* block_sums) {
  const Tag d;
  const size_t lanes = hn::Lanes(d);
  const Vector b = hn::Set(d, best), s = hn::Set(d, scale);
  double total = 0;
  for (size_t begin = 0; begin < count; begin += kMathBlock) {
    const size_t end = std::min(begin + kMathBlock, count);
    Vector sum = hn::Zero(d);
    size_t i = begin;
    for (; i + lanes <= end; i += lanes) sum = hn::Add(sum, Weight(d, hn::LoadU(d, values + i), b, s));
    if (i < end) {
      HWY_ALIGN float rest[hn::MaxLanes(d)];
      std::fill(std::copy(values + i, values + end, rest), rest + lanes,
                -std::numeric_limits<float>::infinity());
      sum = hn::Add(sum, Weight(d, hn::Load(d, rest), b, s));
    }
    const double block = hn::GetLane(hn::SumOfLanes(d, sum));
    if (block_sums != nullptr) block_sums[begin / kMathBlock] = block;
    total += block;
  }
  return total;
}

float ExpOfImpl(float value, float best, float scale) {
  const Tag d;
  return hn::GetLane(Weight(d, hn::Set(d, value), hn::Set(d, best), hn::Set(d, scale)));
}

}  // namespace stria::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stria {

HWY_EXPORT(MaxOfImpl);
HWY_EXPORT(SumExpImpl);
HWY_EXPORT(ExpOfImpl);

float MaxOf(const float* values, size_t count) { return HWY_DYNAMIC_DISPATCH(MaxOfImpl)(values, count); }

double SumExp(const float* values, size_t count, float best, float scale, double* block_sums) {
  return HWY_DYNAMIC_DISPATCH(SumExpImpl)(values, count, best, scale, block_sums);
}

float ExpOf(float value, float best, float scale) {
  return HWY_DYNAMIC_DISPATCH(ExpOfImpl)(value, best, scale);
}

}  // namespace stria
#endif
