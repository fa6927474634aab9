// Compiled without fused multiply-add: pages have the reference's bytes.
#include "kernels/format/seal.cuh"

#include "kernels/cuda/launch.cuh"

namespace stria::cuda {
namespace {

__global__ void __launch_bounds__(kSealThreads) SealPages(const AttentionShape shape, const SealJob* jobs) {
  device::SealKernel(shape, jobs, SharedMemory<device::SealShared>());
}

__global__ void AppendTokens(const AttentionShape shape, const AppendJob* jobs) { device::AppendKernel(shape, jobs); }

}  // namespace

const char* LaunchSeal(const AttentionShape& shape, const SealJob* jobs, int count, Stream stream) {
  return Launch<device::SealShared>(&SealPages, dim3(count, shape.kv_heads), kSealThreads, stream, shape, jobs);
}

const char* LaunchAppend(const AttentionShape& shape, const AppendJob* jobs, int count, Stream stream) {
  return Launch<NoShared>(&AppendTokens, dim3(count), 128, stream, shape, jobs);
}

}  // namespace stria::cuda
