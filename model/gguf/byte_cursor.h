// Reads little-endian values off a span of bytes that may end anywhere.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace stria {

class ByteCursor {
 public:
  explicit ByteCursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  // The next `count` bytes, or InvalidArgument saying what was asked for and what is left.
  absl::StatusOr<std::span<const uint8_t>> Take(uint64_t count) {
    if (count > remaining()) {
      return absl::InvalidArgumentError(absl::StrCat("truncated: ", count, " bytes wanted at offset ",
                                                     position_, " of a file of ", bytes_.size(), " bytes"));
    }
    const std::span<const uint8_t> taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  template <typename T>
  absl::StatusOr<T> Read() {
    auto taken = Take(sizeof(T));
    if (!taken.ok()) return taken.status();
    T value;
    std::memcpy(&value, taken->data(), sizeof(T));
    return value;
  }

  // GGUF's string: a 64-bit length, then that many bytes.
  absl::StatusOr<std::string_view> ReadString() {
    auto length = Read<uint64_t>();
    if (!length.ok()) return length.status();
    auto taken = Take(*length);
    if (!taken.ok()) return taken.status();
    return std::string_view(reinterpret_cast<const char*>(taken->data()), taken->size());
  }

 private:
  std::span<const uint8_t> bytes_;
  uint64_t position_ = 0;
};

}  // namespace stria
