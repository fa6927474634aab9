// Writes GGUF files in memory, well-formed or not, for tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf/ggml_type.h"
#include "model/gguf/gguf_value.h"

namespace stria {

class GgufBuilder {
 public:
  // Every field that a test may want to lie about.
  uint32_t magic = 0x46554747;
  uint32_t version = 3;
  uint64_t alignment = 32;                        // of the data; the metadata key is the test's own business
  int64_t extra_tensors = 0, extra_metadata = 0;  // added to the counts

  // A key with a value of fixed size.
  template <typename T>
  GgufBuilder& Add(std::string_view key, GgufValueType type, T value) {
    Key(key, type);
    Put(metadata_, value);
    return *this;
  }
  GgufBuilder& U32(std::string_view key, uint32_t value) { return Add(key, GgufValueType::kUint32, value); }
  GgufBuilder& F32(std::string_view key, float value) { return Add(key, GgufValueType::kFloat32, value); }
  GgufBuilder& Bool(std::string_view key, uint8_t value) { return Add(key, GgufValueType::kBool, value); }
  GgufBuilder& Text(std::string_view key, std::string_view value) {
    Key(key, GgufValueType::kString);
    PutString(metadata_, value);
    return *this;
  }
  GgufBuilder& Strings(std::string_view key, const std::vector<std::string>& values) {
    ArrayHead(key, GgufValueType::kString, values.size());
    for (const std::string& value : values) PutString(metadata_, value);
    return *this;
  }
  template <typename T>
  GgufBuilder& Array(std::string_view key, GgufValueType element, const std::vector<T>& values) {
    ArrayHead(key, element, values.size());
    for (const T& value : values) Put(metadata_, value);
    return *this;
  }
  // Begins an array of `count` elements, whatever follows.
  GgufBuilder& ArrayHead(std::string_view key, GgufValueType element, uint64_t count) {
    Key(key, GgufValueType::kArray);
    Put(metadata_, static_cast<uint32_t>(element));
    Put(metadata_, count);
    return *this;
  }
  // Appends to the metadata as it is.
  template <typename T>
  GgufBuilder& Raw(T value) {
    Put(metadata_, value);
    return *this;
  }

  // A tensor with its bytes, at the next aligned offset.
  GgufBuilder& Tensor(std::string_view name, const std::vector<uint64_t>& dims, GgmlType type,
                      const std::vector<uint8_t>& bytes) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    RawTensor(name, static_cast<uint32_t>(dims.size()), dims, static_cast<uint32_t>(type), data_.size());
    data_.insert(data_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  GgufBuilder& F32Tensor(std::string_view name, const std::vector<uint64_t>& dims,
                         const std::vector<float>& values) {
    std::vector<uint8_t> bytes(values.size() * sizeof(float));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return Tensor(name, dims, GgmlType::kF32, bytes);
  }
  // A directory entry that says anything.
  GgufBuilder& RawTensor(std::string_view name, uint32_t rank, const std::vector<uint64_t>& dims,
                         uint32_t type, uint64_t offset) {
    ++tensors_;
    PutString(directory_, name);
    Put(directory_, rank);
    for (const uint64_t dim : dims) Put(directory_, dim);
    Put(directory_, type);
    Put(directory_, offset);
    return *this;
  }

  std::vector<uint8_t> Build() const {
    std::vector<uint8_t> out;
    Put(out, magic);
    Put(out, version);
    Put(out, static_cast<uint64_t>(tensors_ + extra_tensors));
    Put(out, static_cast<uint64_t>(keys_ + extra_metadata));
    out.insert(out.end(), metadata_.begin(), metadata_.end());
    out.insert(out.end(), directory_.begin(), directory_.end());
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    out.insert(out.end(), data_.begin(), data_.end());
    return out;
  }

 private:
  template <typename T>
  static void Put(std::vector<uint8_t>& out, T value) {
    const size_t at = out.size();
    out.resize(at + sizeof(T));
    std::memcpy(out.data() + at, &value, sizeof(T));
  }
  static void PutString(std::vector<uint8_t>& out, std::string_view text) {
    Put(out, uint64_t{text.size()});
    out.insert(out.end(), text.begin(), text.end());
  }
  void Key(std::string_view key, GgufValueType type) {
    ++keys_;
    PutString(metadata_, key);
    Put(metadata_, static_cast<uint32_t>(type));
  }

  int64_t tensors_ = 0, keys_ = 0;
  std::vector<uint8_t> metadata_, directory_, data_;
};

}  // namespace stria
