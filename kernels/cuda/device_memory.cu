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

const char* CopyOnDevice(void* to, const void* from, size_t bytes) {
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

double Milliseconds(int times, const std::function<const char*()>& work) {
  cudaEvent_t begin, end;
  STRIA_CHECK(cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess);
  STRIA_CHECK(work() == nullptr);
  STRIA_CHECK(cudaEventRecord(begin) == cudaSuccess);
  for (int i = 0; i < times; ++i) STRIA_CHECK(work() == nullptr);
  STRIA_CHECK(cudaEventRecord(end) == cudaSuccess && cudaEventSynchronize(end) == cudaSuccess);
  float ms = 0;
  STRIA_CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaSuccess);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return ms / times;
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
