#include "proto/prefix_chain.h"

#include <numeric>
#include <set>
#include <span>
#include <string_view>

#include "gtest/gtest.h"

namespace stria {
namespace {

std::vector<int32_t> Tokens(int count) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

std::vector<PrefixKey> Keys(const std::vector<int32_t>& tokens, std::string_view salt = "",
                            std::string_view fingerprint = "m", const CachePlan& plan = {}) {
  PrefixChain chain(fingerprint, plan, salt);
  chain.Append(tokens);
  return chain.keys();
}

CachePlan Plain(Width keys, Width values) {
  LayerAction action;
  action.keys = keys;
  action.values = values;
  return {.follow_tiers = false, .layers = std::vector<LayerAction>(2, action)};
}

TEST(PrefixChain, AKeyStandsForAllTokensBefore) {
  const auto keys = Keys(Tokens(200));
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), 3u);
  std::vector<int32_t> changed = Tokens(200);
  changed[70] = 7;
  const auto other = Keys(changed);
  EXPECT_EQ(other[0], keys[0]);
  EXPECT_NE(other[1], keys[1]);
  EXPECT_NE(other[2], keys[2]);
  // However the tokens come.
  PrefixChain chain("m", {}, "");
  const std::vector<int32_t> tokens = Tokens(200);
  for (int begin : {0, 1, 63, 64, 130}) {
    const int end = begin == 0 ? 1 : begin == 1 ? 63 : begin == 63 ? 64 : begin == 64 ? 130 : 200;
    chain.Append(std::span<const int32_t>(tokens).subspan(begin, end - begin));
  }
  EXPECT_EQ(chain.keys(), keys);
}

TEST(PrefixChain, EveryFieldCounts) {
  const auto tokens = Tokens(64);
  CachePlan latent = Plain(Width::kInt4, Width::kInt4), inherit = latent, deeper = latent;
  latent.layers[1].kind = LayerAction::Kind::kLatent;
  latent.layers[1].rank = 192;
  CachePlan wider = latent, other_layer = Plain(Width::kInt4, Width::kInt4);
  wider.layers[1].rank = 256;
  inherit.layers[1].kind = LayerAction::Kind::kInherit;
  other_layer.layers[0].kind = LayerAction::Kind::kInherit;
  const std::set<PrefixKey> all = {Keys(tokens)[0],
                                   Keys(tokens, "a")[0],
                                   Keys(tokens, "", "ma")[0],  // a field's border counts
                                   Keys(tokens, "a", "m")[0],
                                   Keys(tokens, "am", "")[0],
                                   Keys(tokens, "", "m", latent)[0],
                                   Keys(tokens, "", "m", wider)[0],
                                   Keys(tokens, "", "m", inherit)[0],
                                   Keys(tokens, "", "m", other_layer)[0]};
  EXPECT_EQ(all.size(), 8u);  // the second and fourth are one
  // Widths don't: which widths serve is for Find to say.
  EXPECT_EQ(Keys(tokens, "", "m", Plain(Width::kInt8, Width::kInt2)), Keys(tokens));
}

}  // namespace
}  // namespace stria
