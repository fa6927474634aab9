#include "kernels/attention/decode_attention.cuh"

#include "kernels/cuda/launch.cuh"

namespace stria::cuda {
namespace {

template <int kMaxDim>
__global__ void __launch_bounds__(kDecodeThreads, 2) DecodePages(const DecodeParams params) {
  device::DecodeAttentionKernel<kMaxDim, device::TensorCores>(params, SharedMemory<device::DecodeShared<kMaxDim>>());
}

__global__ void MergeUnits(const DecodeParams params) { device::DecodeMergeKernel(params); }

template <int kMaxDim>
const char* Attend(const DecodeParams& params, int units, Stream stream) {
  return Launch<device::DecodeShared<kMaxDim>>(&DecodePages<kMaxDim>, dim3(units), kDecodeThreads, stream, params);
}

}  // namespace

const char* LaunchDecodeAttention(const DecodeParams& params, int units, int merges, Stream stream) {
  const int dim = params.shape.head_dim;
  const char* error = dim <= 64    ? Attend<64>(params, units, stream)
                      : dim <= 128 ? Attend<128>(params, units, stream)
                                   : Attend<256>(params, units, stream);
  if (error != nullptr) return error;
  return Launch<NoShared>(&MergeUnits, dim3(merges), 256, stream, params);
}

}  // namespace stria::cuda
