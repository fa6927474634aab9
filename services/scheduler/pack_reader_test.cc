#include "services/scheduler/pack_reader.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "services/scheduler/json_fields.h"

namespace stria {
namespace {

constexpr char kTensors[] = "not read here";
// sha256sum of the above.
constexpr char kSha256[] = "1779752edfe32cd43ba469bbdfc5647fdf250f12b5ccbdc516157e3891205696";

Json Description() {
  return Json::parse(absl::StrCat(R"({"format": "stria-pack", "version": 1, "model": {"fingerprint": "abc", "layers": 3},
    "tensors": {"file": "pack.safetensors", "bytes": 13, "sha256": ")", kSha256, R"("},
    "kaizen": {"lossless_ratio": 2, "plans": [["fp16", "fp16", "fp16"], ["int8", {"keys": "int8", "values": "int8"}, "int8"], ["int8", "inherit", "int4"]]},
    "record": {"by": "hand"}})"));
}

// What reading says to a pack with this edit: "" when it is taken.
std::string Answer(const std::function<void(Json&)>& edit, const std::string& tensors = kTensors) {
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/pack");
  std::filesystem::create_directory(folder);
  Json json = Description();
  edit(json);
  std::ofstream(folder + "/pack.json") << json.dump();
  std::ofstream(folder + "/pack.safetensors") << tensors;
  const auto offer = ReadPack(folder);
  if (offer.ok()) return "";
  const std::string message(offer.status().message()), beginning = absl::StrCat("the pack ", folder, ": ");
  EXPECT_TRUE(message.starts_with(beginning)) << message;
  return message.substr(beginning.size());
}

TEST(ReadPack, GivesModelPlansAndTheirRatios) {
  ASSERT_EQ(Answer([](Json&) {}), "");
  const auto offer = ReadPack(absl::StrCat(std::getenv("TEST_TMPDIR"), "/pack"));
  ASSERT_TRUE(offer.ok()) << offer.status();
  EXPECT_EQ(offer->model, "abc");
  EXPECT_EQ(offer->lossless_ratio, 2);
  ASSERT_EQ(offer->plans.size(), 3u);
  EXPECT_EQ(offer->plans[1].ratio, 2);
  EXPECT_EQ(offer->plans[2].ratio, 4);  // 96 bits over 16 + 8
  EXPECT_EQ(offer->plans[2].layers[1].kind, LayerAction::Kind::kInherit);
  EXPECT_EQ(offer->plans[2].layers[2].values, Width::kInt4);
}

TEST(ReadPack, RefusesWhatIsWrongOrNotServedYet) {
  EXPECT_EQ(Answer([](Json& json) { json["version"] = 2; }), "format \"stria-pack\" version 2, not \"stria-pack\" version 1");
  EXPECT_EQ(Answer([](Json& json) { json.erase("format"); }), "format null version 1, not \"stria-pack\" version 1");
  EXPECT_EQ(Answer([](Json& json) { json["model"].erase("fingerprint"); }), "model.fingerprint is missing");
  EXPECT_EQ(Answer([](Json& json) { json["model"] = 7; }), "model.fingerprint is missing");
  EXPECT_EQ(Answer([](Json& json) { json["model"]["layers"] = 30; }), "its plans have 3 layers, its model 30");
  EXPECT_EQ(Answer([](Json& json) { json["tensors"]["file"] = "../secrets"; }), "tensors.file is \"../secrets\", not \"pack.safetensors\"");
  EXPECT_EQ(Answer([](Json&) {}, "not read herE"), "the checksum of pack.safetensors is wrong");
  EXPECT_EQ(Answer([](Json&) {}, "not read"), "pack.safetensors has 8 bytes, pack.json says 13");
  EXPECT_EQ(Answer([](Json& json) { json.erase("tensors"); }), "") << "plain widths need none";
  EXPECT_EQ(Answer([](Json& json) { json.erase("kaizen"); }), "it offers no plans");
  EXPECT_EQ(Answer([](Json& json) { json["kaizen"].erase("lossless_ratio"); }), "kaizen.lossless_ratio is missing");
  EXPECT_EQ(Answer([](Json& json) { json["kaizen"]["plans"][1] = "int8"; }), "plan 1 is not a list of actions");
  EXPECT_EQ(Answer([](Json& json) { json["kaizen"]["plans"][1][2] = "int3"; }), "plan 1 has \"int3\" for layer 2");
  EXPECT_EQ(Answer([](Json& json) { json["kaizen"]["plans"][1][2] = {{"latent", 64}, {"bits", 4}}; }), "plan 1 has latents, which nothing serves yet");
  EXPECT_EQ(Answer([](Json& json) { json["inherit"] = {{"maps", "absorbed"}}; }), "its plans inherit through maps, which nothing serves yet");
  EXPECT_EQ(Answer([](Json& json) { json["kaizen"]["lossless_ratio"] = 5; }), "the lossless ratio is 5, its plans make 1 to 4");
}

TEST(ReadPack, RefusesAFolderWithoutAPackAndWhatIsNoJson) {
  EXPECT_EQ(ReadPack("/no/such/pack").status().message(), "the pack /no/such/pack: there is no pack.json");
  const std::string folder = absl::StrCat(std::getenv("TEST_TMPDIR"), "/broken");
  std::filesystem::create_directory(folder);
  for (const char* text : {"", "[]", "{\"format\": ", "{\"format\": \"\xff\"}"}) {
    std::ofstream(folder + "/pack.json") << text;
    EXPECT_EQ(ReadPack(folder).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace stria
