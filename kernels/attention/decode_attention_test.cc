// One case table drives every (width of keys, width of values, shape, target, length) against the double reference over the
// same pages. The bounds are for reading alone; what a format itself costs is tested beside it.
#include "kernels/attention/decode_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "kernels/format/seal.h"

namespace stria {
namespace {

float Normal(uint64_t seed, uint64_t stream, uint64_t i) {
  const double u = Uniform(seed, stream, 2 * i) + 1e-12, v = Uniform(seed, stream, 2 * i + 1);
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v));
}

using PageMemory = std::unique_ptr<void, decltype(&std::free)>;

// One sequence's cache with everything behind it. Bytes that nobody may read are NaN.
struct Cache {
  AttentionShape shape;
  std::vector<PageMemory> memory;
  std::vector<PageRef> key_pages, value_pages;
  std::vector<Half> key_ring, value_tail;
  int tail = 0;

  SequenceKv View() const {
    return {key_pages.data(), value_pages.data(), static_cast<int>(key_pages.size()), key_ring.data(), value_tail.data(), tail};
  }
};

PageMemory AllocatePage(size_t bytes) {
  void* page = std::aligned_alloc(64, bytes);
  std::memset(page, 0xff, bytes);
  return PageMemory(page, &std::free);
}

// key(head, token, channel) and value(…) make the numbers; widths(page) the page's widths.
template <class Key, class Value, class Widths>
Cache MakeCache(const AttentionShape& shape, int tokens, Key key, Value value, Widths widths) {
  Cache cache;
  cache.shape = shape;
  const int dim = shape.head_dim, block = shape.kv_heads * kPageTokens * dim;
  cache.key_ring.assign(block, Half{0xffff});
  cache.value_tail.assign(block, Half{0xffff});
  for (int begin = 0; begin < tokens; begin += kPageTokens) {
    const int count = std::min(kPageTokens, tokens - begin);
    if (count < kPageTokens) {
      cache.tail = count;
      std::fill(cache.key_ring.begin(), cache.key_ring.end(), Half{0xffff});
    }
    for (int h = 0; h < shape.kv_heads; ++h) {
      for (int t = 0; t < count; ++t) {
        for (int c = 0; c < dim; ++c) {
          cache.key_ring[(h * kPageTokens + t) * dim + c] = ToHalf(key(h, begin + t, c));
          cache.value_tail[(h * kPageTokens + t) * dim + c] = ToHalf(value(h, begin + t, c));
        }
      }
    }
    if (count < kPageTokens) break;
    const auto [key_width, value_width] = widths(begin / kPageTokens);
    cache.memory.push_back(AllocatePage(KeyPageBytes(shape, key_width)));
    SealKeys(Target::kPortable, shape, key_width, {cache.key_ring.data(), kPageTokens * dim}, cache.memory.back().get());
    cache.key_pages.push_back({cache.memory.back().get(), key_width});
    cache.memory.push_back(AllocatePage(ValuePageBytes(shape, value_width)));
    SealValues(Target::kPortable, shape, value_width, {cache.value_tail.data(), kPageTokens * dim}, cache.memory.back().get());
    cache.value_pages.push_back({cache.memory.back().get(), value_width});
    std::fill(cache.value_tail.begin(), cache.value_tail.end(), Half{0xffff});
  }
  return cache;
}

// Keys with a bias per channel, as real ones have; queries as large as makes attention pick out some tokens.
struct RandomNumbers {
  uint64_t seed;
  float Key(int h, int t, int c) const {
    return Normal(seed, 1, (uint64_t(h) << 40) + (uint64_t(t) << 10) + c) + 2 * Normal(seed, 2, h * 1024 + c);
  }
  float Value(int h, int t, int c) const { return Normal(seed, 3, (uint64_t(h) << 40) + (uint64_t(t) << 10) + c); }
  std::vector<float> Queries(const AttentionShape& shape) const {
    std::vector<float> q(shape.heads * shape.head_dim);
    for (size_t i = 0; i < q.size(); ++i) q[i] = 1.5f * Normal(seed, 4, i);
    return q;
  }
};

std::vector<float> Attend(const AttentionShape& shape, Target target, int threads, const std::vector<SequenceKv>& kv,
                          const std::vector<float>& q) {
  const auto attention = DecodeAttention::Create(shape, target, threads);
  std::vector<int> tokens;
  for (const SequenceKv& s : kv) tokens.push_back(s.sealed_pages * kPageTokens + s.tail);
  std::vector<float> out(q.size(), std::numeric_limits<float>::quiet_NaN());
  attention->Plan(tokens);
  attention->Run(kv.data(), q.data(), out.data(), kv.data());
  return out;
}

// |a − b| / |b|, both as one vector.
double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

// Reading error allowed: an 8-bit digit of the query (keys of 2 and 4 bits) and of the probabilities (values of 2 and 4 bits);
// 16 bits for INT8; float rounding for FP16.
double KeyBound(Width width) {
  switch (width) {
    case Width::kInt2: case Width::kInt4: return 0.02;
    case Width::kInt8: return 2e-4;
    case Width::kFp16: return 2e-6;
  }
  return 0;
}
double ValueBound(Width width) {
  switch (width) {
    case Width::kInt2: case Width::kInt4: return 0.015;
    case Width::kInt8: return 2e-4;
    case Width::kFp16: return 2e-6;
  }
  return 0;
}

class DecodeAttentionTest : public testing::TestWithParam<Target> {};

TEST_P(DecodeAttentionTest, EqualsReferenceForEveryWidthShapeAndLength) {
  for (const AttentionShape& shape : {AttentionShape{1, 1, 16}, AttentionShape{6, 2, 64}, AttentionShape{4, 1, 80},
                                      AttentionShape{7, 1, 128}, AttentionShape{6, 1, 48}, AttentionShape{16, 1, 32}, AttentionShape{2, 2, 256}}) {
    const RandomNumbers random{uint64_t(shape.head_dim * 100 + shape.heads)};
    const std::vector<float> q = random.Queries(shape);
    for (Width key_width : kAllWidths) {
      for (Width value_width : kAllWidths) {
        for (int tokens : {1, 63, 64, 65, 127, 128, 129, 331}) {
          const Cache cache = MakeCache(
              shape, tokens, [&](int h, int t, int c) { return random.Key(h, t, c); },
              [&](int h, int t, int c) { return random.Value(h, t, c); },
              [&](int) { return std::pair(key_width, value_width); });
          std::vector<float> expected(q.size());
          DecodeAttentionReference(shape, cache.View(), q.data(), expected.data());
          const std::vector<float> got = Attend(shape, GetParam(), 1, {cache.View()}, q);
          EXPECT_LT(RelativeError(got, expected), KeyBound(key_width) + ValueBound(value_width))
              << Name(key_width) << "/" << Name(value_width) << " head_dim " << shape.head_dim << " group " << shape.group()
              << " tokens " << tokens;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DecodeAttentionTest, testing::ValuesIn(AvailableTargets().begin(), AvailableTargets().end()),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace stria
