// The file that `./stria calibrate` writes and the controller reads with --calibration: one JSON object,
//   {"format": 1, "model": NAME, "fingerprint": TEXT, …, "layers": [{"keys": [k2, k4, k8], "values": […], "canary": […]}, …]}
// with the fields of controller/calibration.h, each at INT2, INT4 and INT8. Other fields say how it was made and are not read.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "controller/calibration.h"
#include "nlohmann/json.hpp"

namespace stria {

nlohmann::json ToJson(const Calibration& calibration);

// InvalidArgument says what is missing or out of range.
absl::StatusOr<Calibration> CalibrationFromJson(const nlohmann::json& object);

// NotFound or InvalidArgument, with the path.
absl::StatusOr<Calibration> ReadCalibration(const std::string& path);

}  // namespace stria
