#include "scheduler/prefix_affinity.h"

#include <vector>

#include <gtest/gtest.h>

namespace stria {
namespace {

std::vector<PrefixKey> Chain(int pages, int32_t first_token) {
  PrefixChain chain("m", {}, "");
  for (int i = 0; i < pages; ++i) chain.Append(std::vector<int32_t>(kPrefixPageTokens, first_token + i));
  return chain.keys();
}

TEST(PrefixAffinity, PagesCountFromTheFirstOn) {
  PrefixAffinity affinity;
  const auto chain = Chain(5, 1);
  affinity.Remember("a", std::span(chain).first(3));
  affinity.Remember("b", std::span(chain).first(1));
  EXPECT_EQ(affinity.PagesOn("a", chain), 3u);
  EXPECT_EQ(affinity.PagesOn("b", chain), 1u);
  EXPECT_EQ(affinity.PagesOn("c", chain), 0u);
  EXPECT_EQ(affinity.PagesOn("a", std::span(chain).first(2)), 2u);
  EXPECT_EQ(affinity.PagesOn("a", std::span(chain).subspan(1)), 2u);  // keys are chains: they name all before them
  EXPECT_EQ(affinity.PagesOn("a", Chain(5, 2)), 0u);
  affinity.Forget("a");
  affinity.Forget("c");
  EXPECT_EQ(affinity.PagesOn("a", chain), 0u);
  EXPECT_EQ(affinity.PagesOn("b", chain), 1u);
}

TEST(PrefixAffinity, EndsOfTheOldestChainsAreForgottenFirst) {
  PrefixAffinity affinity(6);
  const auto a = Chain(3, 1), b = Chain(3, 100), c = Chain(2, 200);
  affinity.Remember("w", a);
  affinity.Remember("v", b);
  affinity.Remember("w", std::span(a).first(1));  // used again
  affinity.Remember("w", c);
  EXPECT_EQ(affinity.PagesOn("w", a), 1u);
  EXPECT_EQ(affinity.PagesOn("v", b), 3u);
  EXPECT_EQ(affinity.PagesOn("w", c), 2u);
  affinity.Remember("w", Chain(1, 300));
  EXPECT_EQ(affinity.PagesOn("v", b), 2u);
}

}  // namespace
}  // namespace stria
