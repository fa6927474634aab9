#include "model/transformer/row_math.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/transformer/row_math.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After foreach_target.h and highway.h.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stria::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void RmsNormImpl(const float* x, const float* weight, float epsilon, int n, float* out) {
  const hn::ScalableTag<float> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  auto squares0 = hn::Zero(d), squares1 = hn::Zero(d);
  int i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    squares0 = hn::MulAdd(a, a, squares0);
    squares1 = hn::MulAdd(b, b, squares1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(squares0, squares1)));
  for (; i < n; ++i) sum += x[i] * x[i];
  const float inverse = 1 / std::sqrt(sum / static_cast<float>(n) + epsilon);
  for (i = 0; i < n; ++i) out[i] = x[i] * inverse * weight[i];
}

void RotateImpl(const float* x, const float* cosines, const float* sines, int pairs, int head_dim,
                float* out) {
  for (int i = 0; i < pairs; ++i) {
    const float a = x[i], b = x[i + pairs];
    out[i] = a * cosines[i] - b * sines[i];
    out[i + pairs] = a * sines[i] + b * cosines[i];
  }
  for (int i = 2 * pairs; i < head_dim; ++i) out[i] = x[i];
}

void SwiGluImpl(const float* HWY_RESTRICT gate, const float* HWY_RESTRICT up, int n,
                float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0f);
  const auto most =
      hn::Set(d, 88.0f);  // hn::Exp gives nonsense where the result overflows; silu is 0 by then
  int i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto g = hn::LoadU(d, gate + i);
    const auto silu = hn::Div(g, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(g), most))));
    hn::StoreU(hn::Mul(silu, hn::LoadU(d, up + i)), d, out + i);
  }
  for (; i < n; ++i) out[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
}

void AddIntoImpl(const float* HWY_RESTRICT x, int n, float* HWY_RESTRICT sum) {
  for (int i = 0; i < n; ++i) sum[i] += x[i];
}

}  // namespace stria::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stria {

HWY_EXPORT(RmsNormImpl);
HWY_EXPORT(RotateImpl);
HWY_EXPORT(SwiGluImpl);
HWY_EXPORT(AddIntoImpl);

void RmsNorm(const float* x, const float* weight, float epsilon, int n, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormImpl)(x, weight, epsilon, n, out);
}

void Rotate(const float* x, const float* cosines, const float* sines, int pairs, int head_dim, float* out) {
  HWY_DYNAMIC_DISPATCH(RotateImpl)(x, cosines, sines, pairs, head_dim, out);
}

void SwiGlu(const float* gate, const float* up, int n, float* out) {
  HWY_DYNAMIC_DISPATCH(SwiGluImpl)(gate, up, n, out);
}

void AddInto(const float* x, int n, float* sum) { HWY_DYNAMIC_DISPATCH(AddIntoImpl)(x, n, sum); }

}  // namespace stria
#endif
