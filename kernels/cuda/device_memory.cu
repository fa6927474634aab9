#include "kernels/cuda/device_memory.h"

#include <cuda_runtime.h>

#include "base/check.h"

namespace stria::cuda {

int DeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string DeviceName() {
  cudaDeviceProp properties;
  STRIA_CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  return std::string(properties.name) + ", sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
}

const char* Synchronize() {
  const cudaError_t error = cudaDeviceSynchronize();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

DeviceBytes::DeviceBytes(size_t bytes) : data_(nullptr) { STRIA_CHECK(cudaMalloc(&data_, bytes + 1) == cudaSuccess); }
DeviceBytes::~DeviceBytes() { cudaFree(data_); }

void DeviceBytes::Upload(const void* from, size_t bytes) {
  STRIA_CHECK(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess);
}
void DeviceBytes::Download(void* to, size_t bytes) const {
  STRIA_CHECK(cudaDeviceSynchronize() == cudaSuccess);
  STRIA_CHECK(cudaMemcpy(to, data_, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
}

}  // namespace stria::cuda
