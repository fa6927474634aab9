// Sums and maxima over the 32 lanes of a warp, the same in every lane. All lanes call them.
#pragma once

#include "kernels/device/device.cuh"

namespace stria::device {

template <class T>
STRIA_DEVICE T WarpSum(T x) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x += ShuffleXor(kAllLanes, x, lanes);
  return x;
}

// NaN only if all are.
STRIA_DEVICE float WarpMax(float x) {
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x = Max(x, ShuffleXor(kAllLanes, x, lanes));
  return x;
}

}  // namespace stria::device
