// How a kernel with a SharedStorage struct is launched.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"

namespace stria::cuda {

inline const char* Failure(cudaError_t error) { return error == cudaSuccess ? nullptr : cudaGetErrorString(error); }

// The block's shared memory as a struct; its size is given at the launch.
template <class Shared>
__device__ __forceinline__ Shared& SharedMemory() {
  extern __shared__ __align__(16) char memory[];
  return *reinterpret_cast<Shared*>(memory);
}

template <class Shared, class... Parameters, class... Arguments>
const char* Launch(void (*kernel)(Parameters...), dim3 grid, int threads, Stream stream, const Arguments&... arguments) {
  // Blocks of sm_80 may ask for 163 KiB; beyond 48 they must say so.
  static_assert(sizeof(Shared) <= 163 << 10);
  if constexpr (sizeof(Shared) > 48 << 10) {
    const auto error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
    if (error != cudaSuccess) return Failure(error);
  }
  kernel<<<grid, threads, sizeof(Shared), stream>>>(arguments...);
  return Failure(cudaGetLastError());
}

struct NoShared {};

}  // namespace stria::cuda
