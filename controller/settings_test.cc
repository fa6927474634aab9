#include "controller/settings.h"

#include <cmath>

#include "gtest/gtest.h"

namespace stria {
namespace {

using enum Width;

TEST(Settings, AreCheckedByName) {
  Settings settings;
  for (const auto& [name, value] : std::vector<std::pair<std::string, double>>{{"tau", 0},
                                                                                {"tau", -1},
                                                                                {"tau", std::nan("")},
                                                                                {"tau", INFINITY},
                                                                                {"canary_rate", 1.01},
                                                                                {"alpha", 0},
                                                                                {"demote_after", 2.5},
                                                                                {"demote_after", 0},
                                                                                {"promote_at_once", 0.9},
                                                                                {"reference_length", 0},
                                                                                {"hysteresis", 1},
                                                                                {"frozen", 2},
                                                                                {"policy", 2},
                                                                                {"taw", 1}}) {
    const absl::Status status = SetSetting(settings, name, value);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << value;
    EXPECT_NE(status.message().find(name), status.message().npos);
  }
  for (const auto& [name, choice] : std::vector<std::pair<std::string, std::string>>{
           {"policy", "pid"}, {"keys_widest", "int3"}, {"tau", "int4"}, {"frozen", "yes"}, {"taw", "1"}}) {
    const absl::Status status = SetSetting(settings, name, choice);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << choice;
    EXPECT_NE(status.message().find(name), status.message().npos);
  }
  EXPECT_EQ(settings, Settings{});
}

TEST(Settings, EveryFieldReadsBackWhatWasSet) {
  for (const SettingField& field : SettingFields()) {
    for (const double value : {field.min, field.max}) {
      Settings settings;
      ASSERT_TRUE(SetSetting(settings, field.name, value).ok()) << field.name;
      EXPECT_EQ(field.get(settings), value) << field.name;
    }
    for (const std::string_view choice : field.choices) {
      Settings settings;
      ASSERT_TRUE(SetSetting(settings, field.name, choice).ok()) << field.name;
      EXPECT_EQ(field.choices[static_cast<size_t>(field.get(settings))], choice);
    }
  }
}

TEST(Settings, BoundsOfALayerAreItsOwnOrThoseOfAll) {
  Settings settings;
  settings.keys = {kInt4, kFp16};
  settings.values = {kInt2, kInt8};
  settings.pins[3].keys = {kInt8, kInt8};
  EXPECT_EQ(BoundsOf(settings, 2), (LayerPin{settings.keys, settings.values}));
  EXPECT_EQ(BoundsOf(settings, 3), (LayerPin{{kInt8, kInt8}, settings.values}));
  EXPECT_EQ(Clamp(kInt2, settings.keys), kInt4);
  EXPECT_EQ(Clamp(kFp16, settings.values), kInt8);
  EXPECT_EQ(Clamp(kInt4, settings.values), kInt4);
}

TEST(Settings, BoundsMustBeInOrder) {
  Settings settings;
  EXPECT_TRUE(CheckSettings(settings).ok());
  settings.pins[5].values = {kInt8, kInt4};
  const absl::Status status = CheckSettings(settings);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("layer 5"), status.message().npos);
  settings.pins.clear();
  settings.keys = {kFp16, kInt2};
  EXPECT_FALSE(CheckSettings(settings).ok());
}

TEST(Settings, ChangesAreNamed) {
  Settings before, after;
  before.pins = {{1, {.keys = {kInt4, kInt4}, .values = {}}}, {2, {}}};
  after.pins = {{1, {.keys = {kInt8, kInt8}, .values = {}}}, {2, {}}, {30, {}}};
  after.tau = 1;
  after.values.widest = kInt8;
  EXPECT_EQ(ChangedSettings(before, after), (std::vector<std::string>{"tau", "values_widest", "pins.1", "pins.30"}));
}

}  // namespace
}  // namespace stria
