// Reader of GGUF files (versions 2 and 3, little-endian): metadata, the tensor directory and the tensors'
// bytes, mapped. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Nothing in the file is
// trusted: Open checks every count, length and offset against the file's size before it is used, and refuses
// with the offending value.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/gguf/ggml_type.h"
#include "model/gguf/gguf_value.h"
#include "model/gguf/mapped_file.h"

namespace stria {

struct GgufTensor {
  std::string_view name;
  GgmlType type = GgmlType::kF32;
  int rank = 0;  // 1 to 4
  std::array<int64_t, 4> dims = {
      1, 1, 1, 1};                // dims[0] is the contiguous one: a matrix is [dims[1], dims[0]] row-major
  std::span<const uint8_t> data;  // exactly rows() whole rows

  int64_t cols() const { return dims[0]; }
  int64_t rows() const { return dims[1] * dims[2] * dims[3]; }
  int64_t row_bytes() const { return cols() / LayoutOf(type).elements * LayoutOf(type).bytes; }
};

class GgufFile {
 public:
  // InvalidArgument for a malformed file, Unimplemented for what is well-formed but not supported (version 1,
  // big-endian, a tensor's storage type), both with the path; the system's error where the file cannot be
  // mapped.
  static absl::StatusOr<GgufFile> Open(const std::string& path);

  // The same over bytes that outlive the result.
  static absl::StatusOr<GgufFile> FromBytes(std::span<const uint8_t> bytes);

  // nullptr when the file has no such key or tensor.
  const GgufValue* Find(std::string_view key) const;
  const GgufTensor* FindTensor(std::string_view name) const;

  // Typed access: an absent key gives nullopt, a value of another type (or an integer beyond int64)
  // InvalidArgument.
  absl::StatusOr<std::optional<int64_t>> Integer(std::string_view key) const;
  absl::StatusOr<std::optional<double>> Number(std::string_view key) const;  // floats and integers
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  absl::StatusOr<std::optional<std::string_view>> String(std::string_view key) const;
  absl::StatusOr<std::optional<std::span<const std::string_view>>> Strings(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<int64_t>>> Integers(std::string_view key) const;

  // In file order, names unique.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const std::map<std::string_view, GgufValue>& metadata() const { return metadata_; }
  uint32_t version() const { return version_; }

  std::span<const uint8_t> bytes() const { return bytes_; }
  std::span<const uint8_t> header() const { return header_; }  // magic to the end of the tensor directory

 private:
  friend class GgufParser;
  GgufFile() = default;

  std::optional<MappedFile> file_;
  std::span<const uint8_t> bytes_;
  std::span<const uint8_t> header_;
  uint32_t version_ = 0;
  std::map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, int> tensor_index_;
};

// A name from a file, quoted for an error message: escaped, and cut when it is long.
std::string QuoteForError(std::string_view name);

}  // namespace stria
