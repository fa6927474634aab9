#include "worker/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "worker/vector_math.h"

namespace stria {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kGreedyBelow = 1e-5f;
constexpr size_t kMaximaBlock = 64;

using Candidate = std::pair<float, int32_t>;  // logit, token

bool Better(const Candidate& a, const Candidate& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// Brings the `count` best to the front, in order.
void SortBest(std::vector<Candidate>& candidates, size_t count) {
  count = std::min(count, candidates.size());
  if (count < candidates.size())
    std::nth_element(candidates.begin(), candidates.begin() + count, candidates.end(), Better);
  std::sort(candidates.begin(), candidates.begin() + count, Better);
}

void Collect(std::span<const float> logits, float least, std::vector<Candidate>& out) {
  out.clear();
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] >= least && logits[i] > kNever) out.emplace_back(logits[i], static_cast<int32_t>(i));
}

// A bound that at least k values reach and, usually, few more: the k-th largest of the blocks' maxima.
float BoundOfBest(std::span<const float> values, size_t k, std::vector<float>& maxima) {
  maxima.clear();
  for (size_t i = 0; i < values.size(); i += kMaximaBlock)
    maxima.push_back(MaxOf(values.data() + i, std::min(kMaximaBlock, values.size() - i)));
  if (k == 0 || k > maxima.size()) return kNever;
  std::nth_element(maxima.begin(), maxima.begin() + (k - 1), maxima.end(), std::greater<float>());
  return maxima[k - 1];
}

// Brings the fewest best candidates whose weights add up to `needed` to the front; returns how many, and what
// they hold. Halves the range in doubt again and again, so the cost is linear.
struct Nucleus {
  size_t count = 0;
  double held = 0;
};
Nucleus FindNucleus(std::vector<Candidate>& candidates, double needed, float best, float scale) {
  size_t begin = 0, end = candidates.size();  // the nucleus ends in (begin, end]
  double held = 0;                            // by the candidates before `begin`
  while (end - begin > 1) {
    const size_t middle = begin + (end - begin) / 2;
    std::nth_element(candidates.begin() + begin, candidates.begin() + middle, candidates.begin() + end,
                     Better);
    double half = 0;
    for (size_t i = begin; i < middle; ++i) half += ExpOf(candidates[i].first, best, scale);
    if (held + half >= needed) {
      end = middle;
    } else {
      begin = middle;
      held += half;
    }
  }
  return {end, held + ExpOf(candidates[begin].first, best, scale)};
}

// The k best of a row, in order.
void CollectBest(std::span<const float> logits, size_t k, float least, SamplerScratch& scratch) {
  Collect(logits, std::max(least, BoundOfBest(logits, k, scratch.maxima)), scratch.candidates);
  SortBest(scratch.candidates, k);
  if (scratch.candidates.size() > k) scratch.candidates.resize(k);
}

}  // namespace

int32_t ArgMax(std::span<const float> values) {
  const float best = MaxOf(values.data(), values.size());
  if (best == kNever) return -1;
  return static_cast<int32_t>(std::find(values.begin(), values.end(), best) - values.begin());
}

double LogSumExp(std::span<const float> values) {
  const float best = MaxOf(values.data(), values.size());
  if (!std::isfinite(best)) return best;
  return best + std::log(SumExp(values.data(), values.size(), best, 1.0f));
}

Sampler::Sampler(const SamplingParams& params, std::span<const int32_t> prompt, uint32_t delivered)
    : params_(params),
      penalties_(params.presence_penalty != 0 || params.frequency_penalty != 0 ||
                 params.repetition_penalty != 1) {
  if (!penalties_) return;
  for (size_t i = 0; i < prompt.size(); ++i) {
    Seen& seen = seen_[prompt[i]];
    if (i + delivered >= prompt.size()) ++seen.output;
  }
}

std::optional<TokenOut> Sampler::Sample(std::span<const float> logits, uint32_t index,
                                        SamplerScratch& scratch) {
  std::span<const float> adjusted = logits;
  if (penalties_ || !params_.logit_bias.empty()) {
    scratch.adjusted.assign(logits.begin(), logits.end());
    Adjust(scratch.adjusted);
    adjusted = scratch.adjusted;
  }
  const float best = MaxOf(adjusted.data(), adjusted.size());
  if (best == kNever) return std::nullopt;
  const bool greedy = params_.temperature < kGreedyBelow || params_.top_k == 1 || std::isinf(best);
  const int32_t token =
      greedy ? ArgMax(adjusted) : Draw(adjusted, best, Uniform(params_.seed, params_.choice, index), scratch);
  if (penalties_) ++seen_[token].output;
  return Score(logits, token, scratch);
}

TokenOut Sampler::Score(std::span<const float> logits, int32_t token, SamplerScratch& scratch) const {
  TokenOut out;
  out.token = token;
  if (params_.top_logprobs < 0) return out;
  const double log_sum = LogSumExp(logits);
  const double logprob = logits[token] - log_sum;
  out.logprob = std::isnan(logprob) ? kNever : static_cast<float>(logprob);
  if (params_.top_logprobs == 0) return out;
  CollectBest(logits, static_cast<size_t>(params_.top_logprobs), kNever, scratch);
  for (const auto& [logit, id] : scratch.candidates)
    out.top.push_back({id, static_cast<float>(logit - log_sum)});
  return out;
}

void Sampler::Adjust(std::span<float> logits) const {
  for (const auto& [token, bias] : params_.logit_bias) logits[token] += bias;
  for (const auto& [token, seen] : seen_) {
    float& logit = logits[token];
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    if (seen.output > 0)
      logit -= params_.frequency_penalty * static_cast<float>(seen.output) + params_.presence_penalty;
  }
}

int32_t Sampler::Draw(std::span<const float> logits, float best, double uniform,
                      SamplerScratch& scratch) const {
  const float scale = 1 / params_.temperature;
  const bool top_k = params_.top_k > 0 && params_.top_k < logits.size();
  const bool top_p = params_.top_p < 1;
  const float least =
      params_.min_p > 0 ? best + params_.temperature * std::log(std::min(params_.min_p, 1.0f)) : kNever;

  if (!top_k && !top_p && params_.min_p <= 0) {  // the whole vocabulary: find the block, then the token in it
    scratch.sums.resize((logits.size() + kMathBlock - 1) / kMathBlock);
    double left = uniform * SumExp(logits.data(), logits.size(), best, scale, scratch.sums.data());
    int32_t last = -1;
    for (size_t block = 0; block < scratch.sums.size(); ++block) {
      const bool here = left < scratch.sums[block];
      if (!here) left -= scratch.sums[block];
      if (!here && block + 1 < scratch.sums.size()) continue;
      for (size_t i = block * kMathBlock; i < std::min((block + 1) * kMathBlock, logits.size()); ++i) {
        const float weight = ExpOf(logits[i], best, scale);
        if (weight <= 0) continue;
        last = static_cast<int32_t>(i);
        if ((left -= weight) < 0) return last;
      }
      if (last >= 0) return last;  // rounding carried the draw past the block's end
    }
    return ArgMax(logits);
  }

  auto& candidates = scratch.candidates;
  double total = 0;
  if (top_k)
    CollectBest(logits, params_.top_k, least, scratch);
  else if (top_p && params_.min_p <= 0) {
    // Tokens below (1 − top_p) / vocab of the best are together less than 1 − top_p of the whole: never
    // needed.
    total = SumExp(logits.data(), logits.size(), best, scale);
    const float useless = std::log(std::max((1 - params_.top_p) / static_cast<float>(logits.size()), 1e-30f));
    Collect(logits, best + params_.temperature * useless, candidates);
  } else {
    Collect(logits, least, candidates);
  }
  if (total == 0)
    for (const Candidate& c : candidates) total += ExpOf(c.first, best, scale);
  if (top_p) {
    const Nucleus nucleus = FindNucleus(candidates, params_.top_p * total, best, scale);
    candidates.resize(nucleus.count);
    total = nucleus.held;
  }
  double left = uniform * total;
  for (const Candidate& c : candidates)
    if ((left -= ExpOf(c.first, best, scale)) < 0) return c.second;
  return candidates.back().second;
}

}  // namespace stria
