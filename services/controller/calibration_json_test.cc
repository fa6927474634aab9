#include "services/controller/calibration_json.h"

#include "gtest/gtest.h"

namespace stria {
namespace {

using nlohmann::json;

TEST(CalibrationJson, ReadsBackWhatWasWritten) {
  Calibration calibration{.model = "abc", .layers = {}};
  calibration.layers.push_back({.keys = {0.3, 0.01, 1e-5}, .values = {0.1, 0.004, 0}, .canary = {0.5, 0.02, 0.0001}});
  const auto read = CalibrationFromJson(ToJson(calibration));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->model, "abc");
  ASSERT_EQ(read->layers.size(), 1u);
  EXPECT_EQ(read->layers[0].keys, calibration.layers[0].keys);
  EXPECT_EQ(read->layers[0].values, calibration.layers[0].values);
  EXPECT_EQ(read->layers[0].canary, calibration.layers[0].canary);
}

TEST(CalibrationJson, RefusesWhatMakesNoSense) {
  const json good = {{"format", 1},
                     {"fingerprint", "abc"},
                     {"layers", {{{"keys", {1, 2, 3}}, {"values", {1, 2, 3}}, {"canary", {1, 2, 3}}}}}};
  ASSERT_TRUE(CalibrationFromJson(good).ok());
  for (const auto& [path, value] : std::vector<std::pair<std::string, json>>{{"/format", 2},
                                                                              {"/format", "1"},
                                                                              {"/fingerprint", 5},
                                                                              {"/layers", json::array()},
                                                                              {"/layers/0/keys", {1, 2}},
                                                                              {"/layers/0/values/1", -1},
                                                                              {"/layers/0/canary/2", "x"}}) {
    json bad = good;
    bad[json::json_pointer(path)] = value;
    EXPECT_EQ(CalibrationFromJson(bad).status().code(), absl::StatusCode::kInvalidArgument) << path << value;
  }
  EXPECT_FALSE(CalibrationFromJson(json()).ok());
  EXPECT_EQ(ReadCalibration("/nowhere/x.json").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stria
