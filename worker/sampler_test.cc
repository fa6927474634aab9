#include "worker/sampler.h"

#include <cmath>
#include <limits>
#include <map>

#include "base/random.h"
#include "gtest/gtest.h"
#include "worker/next_token_kl.h"
#include "worker/vector_math.h"

namespace stria {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::optional<int32_t> Sample(const SamplingParams& params, std::vector<float> logits, uint32_t index = 0,
                              std::vector<int32_t> prompt = {}, uint32_t delivered = 0) {
  Sampler sampler(params, prompt, delivered);
  SamplerScratch scratch;
  const auto out = sampler.Sample(logits, index, scratch);
  if (!out) return std::nullopt;
  return out->token;
}

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// Shares of the tokens over many token indices.
std::map<int32_t, double> Shares(const SamplingParams& params, const std::vector<float>& logits,
                                 int draws = 20000) {
  std::map<int32_t, double> shares;
  Sampler sampler(params, {}, 0);
  SamplerScratch scratch;
  for (int i = 0; i < draws; ++i) shares[sampler.Sample(logits, i, scratch)->token] += 1.0 / draws;
  return shares;
}

std::vector<float> Random(size_t n, uint64_t seed, float spread) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = spread * static_cast<float>(Uniform(seed, 1, i) + Uniform(seed, 2, i) - 1);
  return values;
}

TEST(VectorMath, SumExpIsExact) {
  const std::vector<float> values = Random(49153, 3, 30);
  const float best = MaxOf(values.data(), values.size());
  std::vector<double> sums((values.size() + kMathBlock - 1) / kMathBlock);
  for (float temperature : {0.3f, 1.0f, 2.0f}) {
    double exact = 0, blocks = 0;
    for (float v : values) exact += std::exp((double(v) - best) / temperature);
    EXPECT_NEAR(SumExp(values.data(), values.size(), best, 1 / temperature, sums.data()) / exact, 1, 2e-6);
    for (double s : sums) blocks += s;
    EXPECT_NEAR(blocks / exact, 1, 2e-6);
  }
  for (float x = 0; x > -86; x -= 0.37f) EXPECT_NEAR(ExpOf(x, 0, 1) / std::exp(double(x)), 1, 1e-6) << x;
  EXPECT_EQ(ExpOf(-kInf, 0, 1), 0);
  EXPECT_EQ(ExpOf(kNaN, 0, 1), 0);
}

TEST(ArgMax, LowestAmongEquals) {
  std::vector<float> values(1000, -3);
  values[700] = values[301] = 2;
  EXPECT_EQ(ArgMax(values), 301);
  values[5] = kNaN;
  EXPECT_EQ(ArgMax(values), 301);
  EXPECT_EQ(ArgMax(std::vector<float>{-kInf, kNaN, -kInf}), -1);
  EXPECT_EQ(ArgMax(std::vector<float>{-kInf, kNaN, kInf}), 2);
}

TEST(Sampler, GreedyIsArgMax) {
  EXPECT_EQ(Sample(Greedy(), {0, 3, 3, 1}), 1);
  SamplingParams params;
  params.top_k = 1;
  EXPECT_EQ(Sample(params, {0, 3, 3, 1}), 1);
  params = SamplingParams();
  params.temperature = 1e-6f;
  EXPECT_EQ(Sample(params, {0, 3, 3, 1}), 1);
  params.temperature = 1e-4f;  // drawn, but nothing else has a chance
  EXPECT_EQ(Sample(params, {0, 3, 2.9f, 1}), 1);
  params = SamplingParams();
  params.top_p = 0;
  EXPECT_EQ(Sample(params, {0, 3, 3, 1}), 1);
  params = SamplingParams();
  params.min_p = 1;
  params.top_k = 2;
  EXPECT_EQ(Sample(params, {0, 2, 3, 1}), 2);
}

TEST(Sampler, ImpossibleTokens) {
  for (float temperature : {0.0f, 1.0f}) {
    SamplingParams params;
    params.temperature = temperature;
    EXPECT_EQ(Sample(params, {-kInf, -kInf, kNaN}), std::nullopt);
    EXPECT_EQ(Sample(params, {-kInf, -5, kNaN}), 1);
    EXPECT_EQ(Sample(params, {1, kInf, 2}), 1);
    for (uint32_t i = 0; i < 200; ++i) EXPECT_NE(Sample(params, {0, -kInf, 0, kNaN}, i).value() % 2, 1);
    for (auto field : {&SamplingParams::top_p, &SamplingParams::min_p}) {
      SamplingParams filtered = params;
      filtered.*field = 0.5f;
      EXPECT_EQ(Sample(filtered, {-kInf, -5, kNaN}), 1);
    }
    params.top_k = 2;
    EXPECT_EQ(Sample(params, {-kInf, -5, kNaN}), 1);
  }
}

TEST(Sampler, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.2f), std::log(0.3f)};
  auto shares = Shares({}, logits);
  EXPECT_NEAR(shares[0], .5, .02);
  EXPECT_NEAR(shares[1], .2, .02);
  EXPECT_NEAR(shares[2], .3, .02);
  SamplingParams params;
  params.temperature = 0.5f;  // squares: .25, .04, .09 of .38
  shares = Shares(params, logits);
  EXPECT_NEAR(shares[0], .25 / .38, .02);
  EXPECT_NEAR(shares[1], .04 / .38, .02);
  params = SamplingParams();
  params.top_k = 2;
  shares = Shares(params, logits);
  EXPECT_NEAR(shares[0], 5. / 8, .02);
  EXPECT_EQ(shares[1], 0);
  params = SamplingParams();
  params.min_p = 0.5f;  // at least .25: drops .2
  shares = Shares(params, logits);
  EXPECT_NEAR(shares[2], 3. / 8, .02);
  EXPECT_EQ(shares[1], 0);
  params = SamplingParams();
  params.top_p = 0.79f;  // .5 and .3 hold it
  shares = Shares(params, logits);
  EXPECT_NEAR(shares[0], 5. / 8, .02);
  EXPECT_EQ(shares[1], 0);
  params.top_p = 0.81f;
  EXPECT_NEAR(Shares(params, logits)[1], .2, .02);
  params.top_k = 2;  // .81 of what top_k left: .5/.8 does not hold it, so both stay
  EXPECT_NEAR(Shares(params, logits)[2], 3. / 8, .02);
}

// The nucleus by plain sorting, over a vocabulary with a long flat tail.
TEST(Sampler, NucleusOfALargeVocabulary) {
  for (const float spread : {0.5f, 8.0f, 25.0f}) {
    const std::vector<float> logits = Random(49152, 11, spread);
    std::vector<std::pair<double, int32_t>> sorted;
    double total = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      sorted.emplace_back(-logits[i], static_cast<int32_t>(i));
      total += std::exp(double(logits[i]));
    }
    std::sort(sorted.begin(), sorted.end());
    for (const float top_p : {0.05f, 0.9f, 0.999f}) {
      std::map<int32_t, size_t> rank;
      double held = 0;
      for (size_t i = 0; i < sorted.size() && held < top_p * total; ++i) {
        rank[sorted[i].second] = i;
        held += std::exp(-sorted[i].first);
      }
      SamplingParams params;
      params.top_p = top_p;
      size_t worst = 0;
      for (uint32_t i = 0; i < 40; ++i) {
        const int32_t token = *Sample(params, logits, i);
        // Sums in another order: the last token of the nucleus may differ.
        ASSERT_TRUE(rank.contains(token) || token == sorted[rank.size()].second) << spread << " " << top_p;
        worst = std::max(worst, rank.contains(token) ? rank[token] : rank.size());
      }
      EXPECT_GE(worst * 2, rank.size() / 4);  // draws reach well into it
    }
  }
}

TEST(Sampler, DrawsDependOnTheirKeyAlone) {
  const std::vector<float> logits = Random(5000, 5, 6);
  SamplingParams params;
  params.seed = 42;
  Sampler one(params, {}, 0), other(params, {}, 0);
  SamplerScratch scratch;
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < 50; ++i) tokens.push_back(one.Sample(logits, i, scratch)->token);
  for (uint32_t i = 50; i-- > 0;) EXPECT_EQ(other.Sample(logits, i, scratch)->token, tokens[i]);
  params.choice = 1;
  int equal = 0;
  for (uint32_t i = 0; i < 50; ++i) equal += *Sample(params, logits, i) == tokens[i];
  EXPECT_LT(equal, 10);
}

TEST(Sampler, Penalties) {
  SamplingParams params = Greedy();
  params.presence_penalty = 1.5f;
  EXPECT_EQ(Sample(params, {3, 2, 0}, 0, {0, 0}, 0), 0);  // in the prompt only
  EXPECT_EQ(Sample(params, {3, 2, 0}, 0, {1, 0}, 1), 1);  // delivered: part of the output
  params = Greedy();
  params.frequency_penalty = 0.4f;
  EXPECT_EQ(Sample(params, {3, 2, 0}, 0, {0, 0}, 2), 0);     // 3 − .8
  EXPECT_EQ(Sample(params, {3, 2, 0}, 0, {0, 0, 0}, 3), 1);  // 3 − 1.2
  params = Greedy();
  params.repetition_penalty = 2;
  EXPECT_EQ(Sample(params, {3, 2, 0}, 0, {0}, 0), 1);        // 3 / 2, from the prompt
  EXPECT_EQ(Sample(params, {-1, -1.5f, -9}, 0, {0}, 0), 1);  // −1 · 2
  // Tokens that were drawn count from then on.
  params = Greedy();
  params.presence_penalty = 2;
  Sampler sampler(params, {}, 0);
  SamplerScratch scratch;
  const std::vector<float> logits = {3, 2, 1.5f};
  EXPECT_EQ(sampler.Sample(logits, 0, scratch)->token, 0);
  EXPECT_EQ(sampler.Sample(logits, 1, scratch)->token, 1);
  EXPECT_EQ(sampler.Sample(logits, 2, scratch)->token, 2);
  EXPECT_EQ(sampler.Sample(logits, 3, scratch)->token, 0);
}

TEST(Sampler, AFurtherAttemptGoesOnWhereTheLastStopped) {
  const std::vector<float> logits = Random(300, 8, 6);
  SamplingParams params;
  params.seed = 42;
  params.top_p = 0.9f;
  params.presence_penalty = 1;
  params.frequency_penalty = 0.5f;
  params.repetition_penalty = 1.2f;
  const std::vector<int32_t> prompt = {5, 6, 7};
  Sampler whole(params, prompt, 0);
  SamplerScratch scratch;
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < 60; ++i) tokens.push_back(whole.Sample(logits, i, scratch)->token);
  for (uint32_t delivered : {1u, 17u, 59u}) {
    std::vector<int32_t> again = prompt;
    again.insert(again.end(), tokens.begin(), tokens.begin() + delivered);
    Sampler rest(params, again, delivered);
    for (uint32_t i = delivered; i < 60; ++i) EXPECT_EQ(rest.Sample(logits, i, scratch)->token, tokens[i]) << delivered;
  }
}

TEST(Sampler, LogitBias) {
  SamplingParams params = Greedy();
  params.logit_bias = {{0, -100}, {2, 5}};
  EXPECT_EQ(Sample(params, {3, 2, 0}), 2);
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  SamplingParams params = Greedy();
  params.logit_bias = {{0, -100}};
  params.temperature = 0;
  params.top_logprobs = 2;
  Sampler sampler(params, {}, 0);
  SamplerScratch scratch;
  const std::vector<float> logits = {std::log(0.6f), std::log(0.3f), std::log(0.1f), -kInf};
  const TokenOut out = *sampler.Sample(logits, 0, scratch);
  EXPECT_EQ(out.token, 1);
  EXPECT_NEAR(out.logprob, std::log(0.3), 1e-5);
  ASSERT_EQ(out.top.size(), 2u);
  EXPECT_EQ(out.top[0].token, 0);
  EXPECT_NEAR(out.top[0].logprob, std::log(0.6), 1e-5);
  EXPECT_EQ(out.top[1].token, 1);
  EXPECT_EQ(sampler.Score(logits, 3, scratch).logprob, -kInf);
  EXPECT_NEAR(sampler.Score(logits, 2, scratch).logprob, std::log(0.1), 1e-5);
}

TEST(Sampler, TopLogprobsOfALargeVocabulary) {
  const std::vector<float> logits = Random(100003, 9, 5);
  SamplingParams params = Greedy();
  params.top_logprobs = 20;
  SamplerScratch scratch;
  const TokenOut out = *Sampler(params, {}, 0).Sample(logits, 0, scratch);
  std::vector<std::pair<float, int32_t>> sorted;
  for (size_t i = 0; i < logits.size(); ++i) sorted.emplace_back(-logits[i], static_cast<int32_t>(i));
  std::sort(sorted.begin(), sorted.end());
  ASSERT_EQ(out.top.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(out.top[i].token, sorted[i].second);
}

TEST(NextTokenKl, WorkedOut) {
  const std::vector<float> p = {std::log(0.5f), std::log(0.25f), std::log(0.25f)};
  const std::vector<float> q = {std::log(0.25f) + 3, std::log(0.25f) + 3,
                                std::log(0.5f) + 3};  // logits have no zero
  EXPECT_NEAR(NextTokenKl(p, q), 0.5 * std::log(2) - 0.25 * std::log(2), 1e-6);
  EXPECT_NEAR(NextTokenKl(p, p), 0, 1e-7);
}

}  // namespace
}  // namespace stria
