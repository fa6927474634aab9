#include "eval/stability/simulate.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "base/check.h"
#include "base/random.h"
#include "controller/model_state.h"
#include "controller/vote.h"

namespace stria {
namespace {

constexpr double kFarAbove = 1.25;
constexpr uint64_t kOrder = 0, kNudge = 1;  // streams of the generator

// Votes of single readings. Keeps its memory outside the layers' state, so it is no policy to run live.
class VotingPolicy final : public TierPolicy {
 public:
  explicit VotingPolicy(uint32_t votes) : votes_(votes) {}

  void Decide(const Question& question, std::span<LayerState> layers) const override {
    cast_.resize(layers.size());
    for (size_t l = 0; l < layers.size(); ++l) {
      std::deque<Width>& cast = cast_[l];
      cast.push_back(NarrowestWidth(0, [&](size_t i) { return layers[l].plain[i].value() < question.settings.tau; }));
      if (cast.size() > votes_) cast.pop_front();
      layers[l].decided = true;
      layers[l].tier.keys = layers[l].tier.values = MajorityWidth(std::vector<Width>(cast.begin(), cast.end()));
    }
  }

 private:
  const uint32_t votes_;
  mutable std::vector<std::deque<Width>> cast_;
};

// What the canary would read if its reference were the cache: keys stored at a width are the same when stored at it again, and no
// wider one moves them.
void ReadFromCache(const std::vector<LayerTier>& tiers, CanaryFrame& frame) {
  for (LayerReading& reading : frame.readings) {
    for (size_t i = ReadingIndex(tiers[reading.layer].keys); i < kReadingWidths.size(); ++i) reading.kl[i] = 0;
  }
}

void Nudge(uint64_t seed, uint64_t firing, CanaryFrame& frame) {
  for (LayerReading& reading : frame.readings) {
    for (size_t i = 0; i < reading.kl.size(); ++i) {
      const double draw = Uniform(seed, kNudge, (firing * frame.readings.size() + reading.layer) * 3 + i);
      if (draw < 1.0 / 3) reading.kl[i] = std::nextafter(reading.kl[i], 0.0f);
      if (draw > 2.0 / 3) reading.kl[i] = std::nextafter(reading.kl[i], 1.0f);
    }
  }
}

CanaryFrame FrameOf(const RecordedFiring& firing) {
  CanaryFrame frame;
  for (uint32_t l = 0; l < firing.layers.size(); ++l) frame.readings.push_back({.layer = l, .kind = CacheKind::kPlain, .kl = firing.layers[l]});
  return frame;
}

double MeanBits(const std::vector<LayerTier>& tiers) {
  double bits = 0;
  for (const LayerTier& tier : tiers) bits += Bits(tier.keys) + Bits(tier.values);
  return bits / (2 * static_cast<double>(tiers.size()));
}

}  // namespace

Rule SeedRule() {
  Settings settings;
  settings.alpha = 0.1;
  settings.promote_band = settings.hysteresis = 0;
  settings.promote_after = settings.demote_after = 1;
  return {.name = "EMA 0.1, argmin (EchoKV)", .settings = settings};
}

Rule HysteresisRule() {
  Rule rule = SeedRule();
  rule.name = "up at once, down below 0.8 τ for 3 firings";
  rule.settings.hysteresis = 0.2;
  rule.settings.demote_after = 3;
  return rule;
}

Rule VotingRule(uint32_t votes) {
  Rule rule = SeedRule();
  rule.name = "vote of the last " + std::to_string(votes) + " firings";
  rule.settings.alpha = 1;
  rule.votes = votes;
  return rule;
}

Rule BandedRule() { return {.name = "bands and waits", .settings = {}, .calibrated = true}; }

Stream MakeStream(std::span<const RecordedFiring> recording, const std::string& workload, size_t firings, uint64_t seed) {
  std::map<uint32_t, Stream> texts;
  for (const RecordedFiring& firing : recording) {
    if (firing.workload == workload) texts[firing.text].push_back(&firing);
  }
  STRIA_CHECK(!texts.empty());
  std::vector<const Stream*> order;
  for (const auto& [number, text] : texts) order.push_back(&text);
  Stream stream;
  for (uint64_t draw = 0; stream.size() < firings;) {
    // A random permutation of the texts, drawn anew each time round.
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      const double u = Uniform(seed, kOrder, draw++);
      std::swap(order[i], order[i + static_cast<size_t>(u * static_cast<double>(order.size() - i))]);
    }
    for (const Stream* text : order) stream.insert(stream.end(), text->begin(), text->end());
    ++draw;
  }
  stream.resize(firings);
  return stream;
}

Trace Simulate(const Rule& rule, const Calibration* calibration, const Stream& stream, const SimulationOptions& options) {
  const auto layers = static_cast<uint32_t>(stream.at(0)->layers.size());
  Settings settings = rule.settings;
  settings.tau = options.tau;
  const std::unique_ptr<TierPolicy> policy =
      rule.votes > 0 ? std::make_unique<VotingPolicy>(rule.votes) : MakeTierPolicy();
  const Calibration* start = rule.calibrated ? calibration : nullptr;
  STRIA_CHECK(!rule.calibrated || (start != nullptr && start->layers.size() == layers));
  ModelState state = NewModelState("m", "M", layers, 1);
  std::vector<uint32_t> above(layers);
  std::vector<SmoothedReadings> truth(layers);  // the ring's EMA, whatever the policy is shown
  Trace trace;
  uint64_t far = 0;
  for (size_t n = 0; n < stream.size(); ++n) {
    CanaryFrame frame = FrameOf(*stream[n]);
    if (options.ulp_seed != 0) Nudge(options.ulp_seed, n, frame);
    for (uint32_t l = 0; l < layers; ++l) {
      for (size_t i = 0; i < kReadingWidths.size(); ++i) truth[l][i].Observe(frame.readings[l].kl[i], 0.1);
    }
    const std::vector<LayerTier> before = RecommendedTiers(state, settings);
    if (options.reference == Reference::kCache) ReadFromCache(before, frame);
    Observe(state, frame, settings, *policy, start, MonotonicTime{});
    const std::vector<LayerTier> after = RecommendedTiers(state, settings);
    uint32_t flips = 0;
    std::vector<Width> keys(layers);
    for (uint32_t l = 0; l < layers; ++l) {
      keys[l] = after[l].keys;
      if (n > 0) flips += (before[l].keys != after[l].keys) + (settings.policy == PolicyKind::kBudget && before[l].values != after[l].values);
      const size_t width = ReadingIndex(keys[l]);
      const bool stays = width < kReadingWidths.size() && state.ranks[0][l].plain[width].value() > kFarAbove * options.tau;
      above[l] = stays ? above[l] + 1 : 0;
      trace.longest_above = std::max(trace.longest_above, above[l]);
      far += width < kReadingWidths.size() && truth[l][width].value() > kFarAbove * options.tau;
    }
    trace.bits.push_back(MeanBits(after));
    trace.keys.push_back(std::move(keys));
    trace.flips.push_back(flips);
  }
  trace.above_share = static_cast<double>(far) / static_cast<double>(layers * stream.size());
  return trace;
}

}  // namespace stria
