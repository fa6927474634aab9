#include "services/scheduler/kv_reader.h"

#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "scheduler/kv_composer.h"

namespace stria {
namespace {

// The pack of the document's tables: 30 layers, all at FP16, at INT8 (lossless), at INT4, and at INT4 with every other layer inheriting.
PackOffer Offer() {
  PackOffer offer;
  offer.lossless_ratio = 2;
  for (Width width : {Width::kFp16, Width::kInt8, Width::kInt4, Width::kInt4}) {
    PackOffer::Plan& plan = offer.plans.emplace_back();
    plan.layers.resize(30);
    for (size_t layer = 0; layer < 30; ++layer) {
      plan.layers[layer].keys = plan.layers[layer].values = width;
      if (offer.plans.size() == 4 && layer % 2 == 1) plan.layers[layer].kind = LayerAction::Kind::kInherit;
    }
  }
  EXPECT_TRUE(CheckOffer(offer).ok());
  return offer;
}

// What a model of 30 layers says to a prompt of 2,000 tokens with this `kv`: a message, or nothing.
std::string Answer(const std::string& kv, bool has_pack = false) {
  const Json json = Json::parse(absl::StrCat("{\"kv\": ", kv, "}"));
  std::optional<ApiError> error;
  ObjectReader body(json, "", &error);
  const KvChoice choice = ReadKv(body, has_pack, &error);
  if (error) return error->message;
  const KvComposer composer(Offer(), /*limit=*/2);
  const absl::StatusOr<KvChoice> composed = composer.Compose(choice, std::vector<int32_t>(2000, 7), /*pressure=*/0);
  if (!composed.ok()) return std::string(composed.status().message());
  const absl::StatusOr<CachePlan> plan = composed->Plan(30, 2000);
  return plan.ok() ? "" : std::string(plan.status().message());
}

// docs/plans.md is a contract: each refused pair is answered by the message that stands beside it.
TEST(ReadKv, RefusesWhatTheDocumentSaysInItsWords) {
  std::ifstream file("docs/plans.md");
  ASSERT_TRUE(file.good());
  int rows = 0;
  bool has_pack = false;
  for (std::string line; std::getline(file, line);) {
    has_pack |= line == "### With a pack";
    if (!line.starts_with("| `{")) continue;
    const size_t end = line.find("` | ");
    ASSERT_NE(end, std::string::npos) << line;
    const std::string kv = line.substr(3, end - 3), message = line.substr(end + 4, line.size() - end - 4 - 2);
    EXPECT_EQ(Answer(kv, has_pack), message) << kv;
    ++rows;
  }
  EXPECT_GE(rows, 26);
  EXPECT_TRUE(has_pack);
}

TEST(ReadKv, TakesWhatComposes) {
  for (const char* kv : {R"({})", R"({"mode": "auto", "keep": 0.25})", R"({"mode": "int2", "keep": 512})", R"({"mode": "fp16", "ratio": 8})",
                         R"({"mode": "int4", "ratio": 16, "keep": 0.25})", R"({"mode": "int8", "keep": 1, "ratio": 2})"})
    EXPECT_EQ(Answer(kv), "") << kv;
  std::string layers = R"("fp16", {"keys": "int8", "values": "int2"})";
  for (int i = 2; i < 30; ++i) layers += i % 7 == 0 ? R"(, "inherit")" : R"(, "int4")";
  EXPECT_EQ(Answer(absl::StrCat(R"({"mode": "plan", "keep": 0.5, "layers": [)", layers, "]}")), "");
}

TEST(ReadKv, WithAPackKaizenComposes) {
  for (const char* kv : {R"({"mode": "kaizen"})", R"({"mode": "kaizen", "guard": "off"})", R"({"mode": "kaizen", "keep": 300, "guard": "widen"})",
                         R"({"mode": "kaizen", "ratio": 32})", R"({"mode": "kaizen", "ratio": 16, "keep": 0.5})", R"({"mode": "int4", "ratio": 8})"})
    EXPECT_EQ(Answer(kv, /*has_pack=*/true), "") << kv;
}

TEST(ReadKv, ReadsEveryField) {
  const Json json = Json::parse(R"({"kv": {"mode": "plan", "keep": 300, "ratio": 12, "layers": ["int2", {"values": "int8", "keys": "fp16"}, "inherit"]}})");
  std::optional<ApiError> error;
  ObjectReader body(json, "", &error);
  const KvChoice choice = ReadKv(body, false, &error);
  ASSERT_FALSE(error) << error->message;
  EXPECT_EQ(choice.mode, KvChoice::Mode::kPlan);
  EXPECT_EQ(*choice.keep, 300);
  EXPECT_EQ(*choice.ratio, 12);
  ASSERT_EQ(choice.layers.size(), 3u);
  EXPECT_EQ(choice.layers[0].values, Width::kInt2);
  EXPECT_EQ(choice.layers[1].keys, Width::kFp16);
  EXPECT_EQ(choice.layers[1].values, Width::kInt8);
  EXPECT_EQ(choice.layers[2].kind, LayerAction::Kind::kInherit);
}

}  // namespace
}  // namespace stria
