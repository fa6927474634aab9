// Whole rows between float32 and bfloat16, rounded to nearest even.
#pragma once

#include "base/float16.h"

namespace stria {

void ConvertToBFloat16(const float* from, int n, BFloat16* to);
void ConvertToFloat(const BFloat16* from, int n, float* to);

}  // namespace stria
