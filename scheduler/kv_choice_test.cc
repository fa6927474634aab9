#include "scheduler/kv_choice.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace stria {
namespace {

LayerAction Plain(Width keys, Width values) {
  LayerAction action;
  action.keys = keys;
  action.values = values;
  return action;
}
LayerAction Latent(uint32_t rank, Width width) {
  LayerAction action;
  action.kind = LayerAction::Kind::kLatent;
  action.rank = rank;
  action.latent = width;
  return action;
}
LayerAction Inherit() {
  LayerAction action;
  action.kind = LayerAction::Kind::kInherit;
  return action;
}
KvChoice Fixed(Width width) { return {.mode = KvChoice::Mode::kFixed, .width = width, .layers = {}, .keep = {}, .ratio = {}, .widen = {}}; }

// Worked out by hand for SmolLM2's layers: 3 KV heads of 64.
TEST(LayerCost, AsTheFormulasSay) {
  EXPECT_EQ(LayerCost(Plain(Width::kInt8, Width::kInt2), 192, 0), 192 * 10);
  EXPECT_EQ(LayerCost(Latent(96, Width::kInt4), 192, 32), 128 * 4);
  EXPECT_EQ(LayerCost(Inherit(), 192, 32), 0);
}

TEST(RepresentationRatio, CountsLayersWithoutACacheAsFree) {
  EXPECT_EQ(RepresentationRatio({Plain(Width::kFp16, Width::kFp16)}, 192), 1);
  EXPECT_EQ(RepresentationRatio({Plain(Width::kInt4, Width::kInt4), Inherit()}, 192), 8);
  // 2 · 2 · 192 · 16 over 192 · 24 + 128 · 4
  EXPECT_DOUBLE_EQ(RepresentationRatio({Plain(Width::kInt8, Width::kFp16), Latent(96, Width::kInt4)}, 192, 32), 12288. / 5120);
}

TEST(KvChoice, EvictionDoesTheRestOfARatio) {
  KvChoice choice = Fixed(Width::kInt4);
  choice.ratio = 32;  // 4 · 8
  ASSERT_FALSE(choice.Check());
  EXPECT_DOUBLE_EQ(choice.KeptShare(1000), 0.125);
  EXPECT_EQ(choice.Plan(2, 1000)->keep_tokens, 125u);
  EXPECT_EQ(choice.Describe(), "int4, keep 0.125");
  choice.ratio = 4;  // nothing is left to do
  EXPECT_EQ(choice.Plan(2, 1000)->keep_tokens, 0u);
  EXPECT_EQ(choice.Describe(), "int4");
  choice.keep = 0.5;
  choice.ratio = 8;
  EXPECT_FALSE(choice.Check());
  EXPECT_EQ(choice.Plan(2, 1000)->keep_tokens, 500u);
  choice.keep = 250;
  choice.ratio = 16;
  EXPECT_FALSE(choice.Check());
  EXPECT_EQ(choice.Plan(2, 1000)->keep_tokens, 250u);
  EXPECT_TRUE(absl::StrContains(choice.Plan(2, 2000).status().message(), "32 in all"));
}

TEST(KvChoice, KeepIsAShareOrTokens) {
  KvChoice choice;
  choice.keep = 0.25;
  EXPECT_EQ(choice.Plan(3, 1001)->keep_tokens, 251u);
  EXPECT_TRUE(choice.Plan(3, 1001)->follow_tiers);
  EXPECT_EQ(choice.Describe(), "auto, keep 0.25");
  choice.keep = 1;
  EXPECT_EQ(choice.Plan(3, 1001)->keep_tokens, 0u);
  choice.keep = 300;
  EXPECT_EQ(choice.Plan(3, 1001)->keep_tokens, 300u);
  EXPECT_EQ(choice.Plan(3, 299)->keep_tokens, 0u);  // the prompt is shorter
  EXPECT_DOUBLE_EQ(choice.KeptShare(600), 0.5);
}

TEST(KvChoice, PlansAreTakenAsTheyAre) {
  KvChoice choice{.mode = KvChoice::Mode::kPlan,
                  .width = Width::kFp16,
                  .layers = {Plain(Width::kFp16, Width::kFp16), Plain(Width::kInt8, Width::kInt4), Plain(Width::kInt8, Width::kInt4), Inherit()},
                  .keep = {},
                  .ratio = {},
                  .widen = {}};
  ASSERT_FALSE(choice.Check());
  EXPECT_EQ(choice.Plan(4, 10)->layers, choice.layers);
  EXPECT_FALSE(choice.Plan(4, 10)->follow_tiers);
  EXPECT_EQ(choice.Describe(), "plan: 1×fp16 2×int8/int4 1×inherit");
  EXPECT_DOUBLE_EQ(*choice.Representation(), 4 * 32. / (32 + 12 + 12));
  EXPECT_TRUE(absl::StrContains(choice.Plan(30, 10).status().message(), "lists 4 actions, the model has 30"));
}

TEST(KvChoice, NamesWhatIsWrong) {
  const auto field = [](const KvChoice& choice) { return choice.Check() ? std::string(choice.Check()->field) : ""; };
  KvChoice choice;
  choice.ratio = 8;
  EXPECT_EQ(field(choice), "ratio");  // auto
  choice = Fixed(Width::kInt4);
  choice.ratio = 2;
  EXPECT_EQ(field(choice), "ratio");  // int4 is 4 already
  choice.ratio = 8;
  choice.keep = 0.25;
  EXPECT_EQ(field(choice), "ratio");  // they make 16
  for (const double keep : {1.5, 2.0, 63.0, 64.5}) {
    choice = {};
    choice.keep = keep;
    EXPECT_EQ(field(choice), "keep") << keep;
  }
  choice = {};
  choice.layers = {Inherit()};
  EXPECT_EQ(field(choice), "layers");
  for (const LayerAction& first : {Inherit(), Latent(64, Width::kInt4)}) {
    choice = {.mode = KvChoice::Mode::kPlan, .width = Width::kFp16, .layers = {first}, .keep = {}, .ratio = {}, .widen = {}};
    EXPECT_EQ(field(choice), "layers");
  }
}

}  // namespace
}  // namespace stria
