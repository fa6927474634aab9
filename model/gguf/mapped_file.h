// A regular file mapped read-only, so that opening a model costs no copy and several processes share its
// pages.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace stria {

class MappedFile {
 public:
  // NotFound, PermissionDenied, ... with the path; InvalidArgument for what is not a regular file.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // Stays where it is when the MappedFile moves. A file that another process shortens while it is mapped
  // raises SIGBUS: replace model files by renaming, never in place.
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  std::span<const uint8_t> bytes_;
};

}  // namespace stria
