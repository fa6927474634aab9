// Compiled without fused multiply-add: it quantises as a seal does.
#include "kernels/canary/canary.cuh"

#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace stria::cuda {
namespace {

__global__ void __launch_bounds__(kCanaryThreads)
    ReadRings(const AttentionShape shape, const float q_scale, const CanaryJob* jobs) {
  device::CanaryKernel(shape, q_scale, jobs, SharedMemory<device::CanaryShared>());
}

}  // namespace

const char* LaunchCanary(const AttentionShape& shape, const CanaryJob* jobs, int count, Stream stream) {
  const float q_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
  return Launch<device::CanaryShared>(&ReadRings, dim3(count), kCanaryThreads, stream, shape, q_scale, jobs);
}

}  // namespace stria::cuda
