// What the codecs share: verified access to a frame, and checks of fields that name what they refuse.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <flatbuffers/flatbuffers.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/width.h"
#include "proto/codec.h"

namespace stria::internal {

// A frame at an address that is aligned for every field, copied only where it is not so already.
class AlignedFrame {
 public:
  explicit AlignedFrame(std::string_view frame) : data_(frame.data()), size_(frame.size()) {
    if (reinterpret_cast<uintptr_t>(data_) % alignof(uint64_t) == 0) return;
    copy_.resize(size_ / sizeof(uint64_t) + 1);
    std::memcpy(copy_.data(), data_, size_);
    data_ = reinterpret_cast<const char*>(copy_.data());
  }
  AlignedFrame(const AlignedFrame&) = delete;
  AlignedFrame& operator=(const AlignedFrame&) = delete;

  // The root table, or InvalidArgument. Valid while this and the frame live.
  template <typename Root>
  absl::StatusOr<const Root*> Verify(const char* identifier, const char* what) const {
    const auto* bytes = reinterpret_cast<const uint8_t*>(data_);
    if (size_ > kMaxFrameBytes) {
      return absl::InvalidArgumentError(absl::StrCat(what, " frame of ", size_, " bytes, over ", kMaxFrameBytes));
    }
    // Depth and table count are bounded: vectors of tables may repeat an offset, which would make a small frame slow.
    flatbuffers::Verifier verifier(bytes, size_, /*max_depth=*/16, /*max_tables=*/100000);
    if (size_ < 8 || !verifier.VerifyBuffer<Root>(identifier)) {
      return absl::InvalidArgumentError(absl::StrCat("malformed ", what, " frame of ", size_, " bytes"));
    }
    return flatbuffers::GetRoot<Root>(bytes);
  }

 private:
  const char* data_;
  size_t size_;
  std::vector<uint64_t> copy_;
};

inline absl::Status Refuse(const char* field, const auto& value) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value));
}

inline absl::Status CopyText(const char* field, const flatbuffers::String* from, std::string& to) {
  to.clear();
  if (from == nullptr) return absl::OkStatus();
  if (from->size() > kMaxNameBytes) return Refuse(field, absl::StrCat(from->size(), " bytes long"));
  to.assign(from->data(), from->size());
  return absl::OkStatus();
}

inline absl::Status CopyName(const char* field, const flatbuffers::String* from, std::string& to) {
  STRIA_RETURN_IF_ERROR(CopyText(field, from, to));
  return to.empty() ? Refuse(field, "empty") : absl::OkStatus();
}

inline absl::Status CopyWidth(const char* field, uint8_t bits, Width& to) {
  if (!IsWidth(bits)) return Refuse(field, absl::StrCat(bits, " bits"));
  to = static_cast<Width>(bits);
  return absl::OkStatus();
}

inline absl::Status CopyFinite(const char* field, float from, float& to) {
  if (!std::isfinite(from)) return Refuse(field, from);
  to = from;
  return absl::OkStatus();
}

template <typename T>
std::vector<T> CopyNumbers(const flatbuffers::Vector<T>* from) {
  if (from == nullptr) return {};
  return std::vector<T>(from->begin(), from->end());
}

inline absl::Status CheckLayers(const char* field, size_t layers) {
  return layers > kMaxLayers ? Refuse(field, absl::StrCat(layers, " layers, over ", kMaxLayers)) : absl::OkStatus();
}

inline std::string Finish(const flatbuffers::FlatBufferBuilder& builder) {
  return std::string(reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize());
}

}  // namespace stria::internal
