#include "kernels/attention/prefill_attention.cuh"

#include "kernels/cuda/launch.cuh"

namespace stria::cuda {
namespace {

template <int kMaxDim>
__global__ void __launch_bounds__(kPrefillThreads, 2) PrefillRows(const PrefillParams params) {
  device::PrefillAttentionKernel<kMaxDim>(params, SharedMemory<device::PrefillShared<kMaxDim>>());
}

template <int kMaxDim>
const char* Attend(const PrefillParams& params, Stream stream) {
  const dim3 grid(params.Blocks(), params.shape.kv_heads);
  return Launch<device::PrefillShared<kMaxDim>>(&PrefillRows<kMaxDim>, grid, kPrefillThreads, stream, params);
}

}  // namespace

const char* LaunchPrefillAttention(const PrefillParams& params, Stream stream) {
  const int dim = params.shape.head_dim;
  return dim <= 64 ? Attend<64>(params, stream) : dim <= 128 ? Attend<128>(params, stream) : Attend<256>(params, stream);
}

}  // namespace stria::cuda
