// A device and its memory, without CUDA's headers: enough for tests.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stria::cuda {

// Devices that can be used now: 0 where there is none, or no driver.
int DeviceCount();
// Name and compute capability of the first one.
std::string DeviceName();

// Waits for all launched work: nullptr, or what CUDA says went wrong.
const char* Synchronize();

// Memory on the first device. Running out is a CHECK.
class DeviceBytes {
 public:
  explicit DeviceBytes(size_t bytes);
  ~DeviceBytes();
  DeviceBytes(DeviceBytes&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  DeviceBytes& operator=(DeviceBytes&&) = delete;

  void* data() const { return data_; }
  void Upload(const void* from, size_t bytes);
  void Download(void* to, size_t bytes) const;  // after all launched work

 private:
  void* data_;
};

// A copy of `count` elements on the device.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const T* from, size_t count) : count_(count), bytes_(count * sizeof(T)) {
    bytes_.Upload(from, count * sizeof(T));
  }
  explicit DeviceArray(const std::vector<T>& from) : DeviceArray(from.data(), from.size()) {}
  T* data() const { return static_cast<T*>(bytes_.data()); }
  void Download(T* to) const { bytes_.Download(to, count_ * sizeof(T)); }

 private:
  size_t count_;
  DeviceBytes bytes_;
};

}  // namespace stria::cuda
