#include "kernels/evict/snapkv.cuh"

#include "kernels/cuda/launch.cuh"

namespace stria::cuda {
namespace {

__global__ void __launch_bounds__(kObservationThreads) Normalisers(const ObservationParams params) {
  device::ObservationNormalisersKernel(params, SharedMemory<device::ObservationShared>());
}

__global__ void __launch_bounds__(kObservationThreads) Votes(const ObservationParams params) {
  device::ObservationVotesKernel(params, SharedMemory<device::ObservationShared>());
}

}  // namespace

const char* LaunchObservation(const ObservationParams& params, Stream stream) {
  using Shared = device::ObservationShared;
  const int rows = params.query_end - params.query_begin, kv_heads = params.shape.kv_heads;
  if (rows == 0 || params.scored == 0) return nullptr;
  const char* error =
      Launch<Shared>(&Normalisers, dim3(rows, params.Tiles(), kv_heads), kObservationThreads, stream, params);
  if (error != nullptr) return error;
  const int blocks = (params.scored + kObservationThreads - 1) / kObservationThreads;
  return Launch<Shared>(&Votes, dim3(blocks, kv_heads), kObservationThreads, stream, params);
}

}  // namespace stria::cuda
