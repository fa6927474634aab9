// The case table on every instruction set that this machine has; and that a reading is about what a seal would do.
#include "kernels/canary/canary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/canary/canary_cases.h"
#include "kernels/canary/canary_test_data.h"
#include "kernels/format/seal.h"

namespace stria {

const std::vector<CanaryPath>& CanaryPaths() {
  static const std::vector<CanaryPath> paths = [] {
    std::vector<CanaryPath> all;
    for (Target target : AvailableTargets())
      all.push_back({Name(target), [=](const auto&... ring) { CanaryReading(target, ring...); }});
    return all;
  }();
  return paths;
}

namespace {

using canary_test::Ring;

// The reading is about what a seal would do: the same number comes out of pages that were really sealed.
TEST(CanaryReferenceTest, MeasuresWhatSealingDoes) {
  const AttentionShape shape = {6, 2, 64};
  const Ring ring(shape, 64);
  double reading[kCanaryWidths];
  CanaryReadingReference(shape, ring.keys.data(), 64, ring.q.data(), reading);
  const auto log_softmax = [&](const std::vector<float>& keys, int head) {
    std::vector<double> x(64);
    double sum = 0;
    for (int t = 0; t < 64; ++t) {
      for (int c = 0; c < 64; ++c)
        x[t] += double{ring.q[head * 64 + c]} * keys[(head / 3 * 64 + t) * 64 + c] / 8;
      sum += std::exp(x[t]);
    }
    for (double& v : x) v -= std::log(sum);
    return x;
  };
  std::vector<float> exact(2 * 64 * 64), sealed(exact.size());
  for (size_t i = 0; i < exact.size(); ++i) exact[i] = ToFloat(ring.keys[i]);
  for (int w = 0; w < kCanaryWidths; ++w) {
    const Width width = static_cast<Width>(2 << w);
    const std::unique_ptr<void, decltype(&std::free)> page(std::aligned_alloc(64, KeyPageBytes(shape, width)),
                                                           &std::free);
    SealKeys(BestTarget(), shape, width, {ring.keys.data(), 64 * 64}, page.get());
    UnsealKeys(shape, {page.get(), width}, sealed.data());
    double kl = 0;
    for (int head = 0; head < 6; ++head) {
      const auto p = log_softmax(exact, head), q = log_softmax(sealed, head);
      for (int t = 0; t < 64; ++t) kl += std::exp(p[t]) * (p[t] - q[t]) / 6;
    }
    EXPECT_NEAR(reading[w], kl, 1e-9 + 1e-6 * kl) << Name(width);
  }
}

}  // namespace
}  // namespace stria
