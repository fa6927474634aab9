#include "services/controller/calibration_json.h"

#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace stria {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr size_t kMaxLayers = 4096;

// Throws what nlohmann throws, and std::out_of_range.
WidthCosts ReadCosts(const json& list) {
  const auto costs = list.get<std::vector<double>>();
  if (costs.size() != 3) throw std::out_of_range("not three widths");
  for (const double cost : costs) {
    if (!std::isfinite(cost) || cost < 0) throw std::out_of_range("a cost that is negative or not finite");
  }
  return {costs[0], costs[1], costs[2]};
}

}  // namespace

json ToJson(const Calibration& calibration) {
  json layers = json::array();
  for (const LayerCalibration& layer : calibration.layers) {
    layers.push_back({{"keys", layer.keys}, {"values", layer.values}, {"canary", layer.canary}});
  }
  return {{"format", kFormat}, {"fingerprint", calibration.model}, {"layers", std::move(layers)}};
}

absl::StatusOr<Calibration> CalibrationFromJson(const json& object) {
  try {
    if (object.at("format").get<int>() != kFormat) {
      return absl::InvalidArgumentError(absl::StrCat("calibration of format ", object.at("format").get<int>(), ", not ", kFormat));
    }
    Calibration calibration{.model = object.at("fingerprint").get<std::string>(), .layers = {}};
    for (const json& layer : object.at("layers")) {
      calibration.layers.push_back({.keys = ReadCosts(layer.at("keys")),
                                    .values = ReadCosts(layer.at("values")),
                                    .canary = ReadCosts(layer.at("canary"))});
    }
    if (calibration.layers.empty() || calibration.layers.size() > kMaxLayers) {
      return absl::InvalidArgumentError(absl::StrCat("calibration of ", calibration.layers.size(), " layers"));
    }
    return calibration;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("calibration: ", error.what()));
  }
}

absl::StatusOr<Calibration> ReadCalibration(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  const json object = json::parse(file, nullptr, false);
  if (object.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(path, ": not JSON"));
  absl::StatusOr<Calibration> calibration = CalibrationFromJson(object);
  if (calibration.ok()) return calibration;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(calibration.status().message())));
}

}  // namespace stria
