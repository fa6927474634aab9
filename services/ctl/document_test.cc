#include "services/ctl/document.h"

#include "gtest/gtest.h"

namespace stria {
namespace {

using nlohmann::json;

TEST(Document, YamlAndJsonReadTheSame) {
  const json expected = {{"revision", 3}, {"settings", {{"tau", 0.03}, {"frozen", false}, {"policy", "budget"}, {"pins", {{"7", {{"keys", {"int2", "int8"}}}}}}}}};
  EXPECT_EQ(*ParseDocument(expected.dump()), expected);
  EXPECT_EQ(*ParseDocument("# a comment\nrevision: 3\nsettings:\n  tau: 3e-2\n  frozen: false\n  policy: budget\n  pins:\n    7:\n      "
                           "keys: [int2, int8]\n"),
            expected);
}

TEST(Document, WhatIsWrittenReadsBack) {
  const json value = {{"a", {1, 2.5, nullptr, true, "text", "", "on", "12", "1e3", "~", "- x", "a: b", "ä", "#", "two\nlines", "it's"}},
                      {"empty", {{"list", json::array()}, {"object", json::object()}}},
                      {"list of objects", {{{"x", 1}, {"y", {{"z", {1, 2}}}}}, {{"x", 2}}, json::array({json::array({1}), 2})}},
                      {"0", -1e-9},
                      {"true", "false"}};
  const auto back = ParseDocument(ToYaml(value));
  ASSERT_TRUE(back.ok()) << back.status() << "\n" << ToYaml(value);
  EXPECT_EQ(*back, value) << ToYaml(value);
  EXPECT_EQ(ToYaml({{"tau", 0.03}, {"pins", {{"7", {{"keys", "int8"}}}}}}), "pins:\n  \"7\":\n    keys: int8\ntau: 0.03\n");
  EXPECT_EQ(ToYaml(json::array({{{"a", 1}, {"b", 2}}})), "- a: 1\n  b: 2\n");
  EXPECT_EQ(ToYaml(json(3)), "3\n");
}

TEST(Document, SaysWhereItIsWrong) {
  for (const char* bad : {"a: b: c", "a: 1\na: 2", "[1, 2", "a: *x", "a: 1\n---\nb: 2", "", "? [1]\n: 2"}) {
    EXPECT_EQ(ParseDocument(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_NE(std::string(ParseDocument("a: 1\nb: [").status().message()).find("line "), std::string::npos);
  EXPECT_FALSE(ParseDocument(std::string(100, '[') + std::string(100, ']')).ok());
}

}  // namespace
}  // namespace stria
