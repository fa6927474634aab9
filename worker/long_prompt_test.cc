// What running streams and a short prompt feel of a long prompt, on a clock that only the work moves: no machine's speed is in it.
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "worker/engine.h"
#include "worker/fake_transformer.h"

namespace stria {
namespace {

// A decode step takes 4 ms however many sequences it has, a prompt's row 8 µs a layer and 2 ns for each key before it: a step's time for about
// 100 rows, as on a small machine.
class TimedTransformer final : public FakeTransformer {
 public:
  explicit TimedTransformer(FakeClock& clock) : FakeTransformer({.layers = 4, .heads = 2, .kv_heads = 1, .head_dim = 16, .vocab = 61, .context = 8192}), clock_(clock) {}

  void Layer(int layer, RowRole role, std::span<const int32_t> positions, float* residual, LayerCache& cache) override {
    FakeTransformer::Layer(layer, role, positions, residual, cache);
    std::chrono::nanoseconds cost = std::chrono::milliseconds(1);
    if (role == RowRole::kPrompt) cost = positions.size() * std::chrono::nanoseconds(8000 + 2 * positions.back());
    clock_.Advance(std::chrono::duration_cast<Duration>(cost));
  }

 private:
  FakeClock& clock_;
};

StartSequence Request(uint64_t id, uint32_t prompt, uint32_t new_tokens) {
  StartSequence start;
  start.name = {id, 0};
  for (uint32_t i = 0; i < prompt; ++i) start.prompt.push_back(static_cast<int32_t>((id * 31 + i * 7) % 61));
  start.max_new_tokens = new_tokens;
  start.sampling.temperature = 0;
  return start;
}

TEST(LongPrompt, RunningStreamsGoOnAndAShortPromptIsNotBehindIt) {
  FakeClock clock;
  TimedTransformer transformer(clock);
  EngineOptions options;
  options.prefill_chunk = 128;
  options.target = AvailableTargets().front();
  const auto engine = Engine::Create(transformer, options, clock);
  ASSERT_TRUE(engine.ok()) << engine.status();

  std::map<uint64_t, std::vector<double>> heard;  // seconds at which each sequence's tokens came
  const auto turn = [&] {
    for (const SequenceOutput& output : (*engine)->Turn().outputs) {
      for (size_t i = 0; i < output.tokens.size(); ++i) {
        heard[output.name.id].push_back(std::chrono::duration<double>(clock.Now().time_since_epoch()).count());
      }
    }
  };
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE((*engine)->Start(Request(id, 40, 4000)).ok());
  while (heard[1].size() < 100) turn();
  const auto gaps = [&](size_t from) {
    std::vector<double> gaps;
    for (size_t i = from + 1; i < heard[1].size(); ++i) gaps.push_back(heard[1][i] - heard[1][i - 1]);
    std::sort(gaps.begin(), gaps.end());
    return gaps;
  };
  const std::vector<double> quiet = gaps(50);
  const double step = quiet[quiet.size() / 2];
  EXPECT_NEAR(step, 0.004, 1e-9);

  const size_t before = heard[1].size();
  ASSERT_TRUE((*engine)->Start(Request(5, 7000, 2)).ok());
  for (int i = 0; i < 20; ++i) turn();
  ASSERT_TRUE(heard[5].empty()) << "it is still being read";
  const double asked = std::chrono::duration<double>(clock.Now().time_since_epoch()).count();
  ASSERT_TRUE((*engine)->Start(Request(6, 30, 2)).ok());
  while (heard[5].empty()) turn();
  ASSERT_FALSE(heard[6].empty());
  EXPECT_LE(heard[6][0] - asked, 10 * step) << "the short one is read first";
  EXPECT_LE(gaps(before).back(), 4 * step) << "no running stream waits longer";
  EXPECT_GT(gaps(before).back(), 1.5 * step) << "the prompt did run between the steps";
}

}  // namespace
}  // namespace stria
