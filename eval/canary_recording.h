// Canary readings recorded on a real model, one line per firing on one sequence:
//   WORKLOAD,TEXT,TOKENS,layer 0 at INT2,INT4,INT8,layer 1 …
// with readings in millionths of a nat, at the default reference length. Lines of one text stand in the order of their tokens.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stria {

struct RecordedFiring {
  std::string workload;
  uint32_t text = 0;    // number within the workload
  uint32_t tokens = 0;  // of the sequence
  std::vector<std::array<float, 3>> layers;  // KL in nats at INT2, INT4, INT8
};

std::string FormatFiring(const RecordedFiring& firing);  // ends in a newline

// Errors name the file and the line: not such a line, or of another number of layers than the first.
absl::StatusOr<std::vector<RecordedFiring>> ReadRecording(const std::string& path);

}  // namespace stria
