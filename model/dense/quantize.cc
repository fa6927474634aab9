#include "model/dense/quantize.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/dense/quantize.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace stria::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// q = round(x / scale), scale = max |x| / limit.
template <typename T>
float Quantize(const float* HWY_RESTRICT x, int n, int limit, T* HWY_RESTRICT q) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<T, decltype(df)> dq;
  const int lanes = static_cast<int>(hn::Lanes(df));
  auto max = hn::Zero(df);
  int i = 0;
  for (; i + lanes <= n; i += lanes) max = hn::Max(max, hn::Abs(hn::LoadU(df, x + i)));
  float peak = hn::GetLane(hn::MaxOfLanes(df, max));
  for (; i < n; ++i) peak = std::max(peak, std::abs(x[i]));

  const float scale = peak / static_cast<float>(limit);
  const float inverse = scale > 0 ? 1 / scale : 0;  // rows too small for their scale to be a number are zero
  const auto factor = hn::Set(df, inverse);
  for (i = 0; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::DemoteTo(dq, hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), factor))), dq, q + i);
  }
  const float most = static_cast<float>(limit);
  for (; i < n; ++i) q[i] = static_cast<T>(std::lrint(std::clamp(x[i] * inverse, -most, most)));
  return scale;
}

float QuantizeRowImpl(const float* x, int n, int16_t* q) { return Quantize(x, n, kActivationMax, q); }
float QuantizeChannelImpl(const float* w, int n, int8_t* q) { return Quantize(w, n, 127, q); }

// A plain loop, compiled for each instruction set.
void SplitDigitsImpl(const int16_t* HWY_RESTRICT q, int n, int8_t* HWY_RESTRICT hi, int8_t* HWY_RESTRICT lo) {
  for (int i = 0; i < n; ++i) {
    const int16_t high = static_cast<int16_t>((q[i] + 128) >> 8);
    hi[i] = static_cast<int8_t>(high);
    lo[i] = static_cast<int8_t>(q[i] - high * 256);
  }
}

}  // namespace stria::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stria {

HWY_EXPORT(QuantizeRowImpl);
HWY_EXPORT(QuantizeChannelImpl);
HWY_EXPORT(SplitDigitsImpl);

float QuantizeRow(const float* x, int n, int16_t* q) {
  return HWY_DYNAMIC_DISPATCH(QuantizeRowImpl)(x, n, q);
}

void SplitDigits(const int16_t* q, int n, int8_t* hi, int8_t* lo) {
  HWY_DYNAMIC_DISPATCH(SplitDigitsImpl)(q, n, hi, lo);
}

float QuantizeChannel(const float* w, int n, int8_t* q) {
  return HWY_DYNAMIC_DISPATCH(QuantizeChannelImpl)(w, n, q);
}

}  // namespace stria
#endif
