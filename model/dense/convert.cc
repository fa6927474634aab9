#include "model/dense/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/dense/convert.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// Plain loops, compiled for each instruction set.
HWY_BEFORE_NAMESPACE();
namespace stria::HWY_NAMESPACE {

void ToBFloat16Impl(const float* HWY_RESTRICT from, int n, BFloat16* HWY_RESTRICT to) {
  for (int i = 0; i < n; ++i) to[i] = ToBFloat16(from[i]);
}

void ToFloatImpl(const BFloat16* HWY_RESTRICT from, int n, float* HWY_RESTRICT to) {
  for (int i = 0; i < n; ++i) to[i] = ToFloat(from[i]);
}

}  // namespace stria::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stria {

HWY_EXPORT(ToBFloat16Impl);
HWY_EXPORT(ToFloatImpl);

void ConvertToBFloat16(const float* from, int n, BFloat16* to) {
  HWY_DYNAMIC_DISPATCH(ToBFloat16Impl)(from, n, to);
}
void ConvertToFloat(const BFloat16* from, int n, float* to) {
  HWY_DYNAMIC_DISPATCH(ToFloatImpl)(from, n, to);
}

}  // namespace stria
#endif
