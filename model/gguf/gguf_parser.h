// Turns the bytes of a GGUF file into a GgufFile. Used by gguf_file.cc only.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/gguf/byte_cursor.h"
#include "model/gguf/gguf_file.h"

namespace stria {

class GgufParser {
 public:
  explicit GgufParser(std::span<const uint8_t> bytes) : bytes_(bytes), cursor_(bytes) {}

  absl::StatusOr<GgufFile> Parse();

 private:
  absl::Status ParseMetadata(uint64_t count);
  absl::Status ParseTensors(uint64_t count);
  absl::StatusOr<GgufTensor> ParseTensor(uint64_t* offset);
  absl::StatusOr<GgufValue> ParseValue(uint32_t type);
  absl::StatusOr<GgufArray> ParseArray(int depth);
  absl::StatusOr<uint64_t> Alignment() const;

  std::span<const uint8_t> bytes_;
  ByteCursor cursor_;
  GgufFile file_;
};

}  // namespace stria
