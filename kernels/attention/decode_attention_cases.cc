// One case table drives every (width of keys, width of values, shape, path, length) against the double
// reference over the same pages. The bounds are for reading alone; what a format itself costs is tested
// beside it.
#include "kernels/attention/decode_attention_cases.h"

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

  // Unsealed tokens from `position`; slots past them are NaN.
  template <class Numbers>
  void SetTail(int count, const Numbers& random, int position) {
    tail = count;
    const int dim = shape.head_dim;
    for (int i = 0; i < shape.kv_heads * kPageTokens * dim; ++i) {
      const int h = i / dim / kPageTokens, t = i / dim % kPageTokens, c = i % dim;
      key_ring[i] = t < count ? ToHalf(random.Key(h, position + t, c)) : Half{0xffff};
      value_tail[i] = t < count ? ToHalf(random.Value(h, position + t, c)) : Half{0xffff};
    }
  }

  SequenceKv View() const {
    return {key_pages.data(), value_pages.data(), static_cast<int>(key_pages.size()),
            key_ring.data(),  value_tail.data(),  tail};
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
    SealKeys(Target::kPortable, shape, key_width, {cache.key_ring.data(), kPageTokens * dim},
             cache.memory.back().get());
    cache.key_pages.push_back({cache.memory.back().get(), key_width});
    cache.memory.push_back(AllocatePage(ValuePageBytes(shape, value_width)));
    SealValues(Target::kPortable, shape, value_width, {cache.value_tail.data(), kPageTokens * dim},
               cache.memory.back().get());
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
  float Value(int h, int t, int c) const {
    return Normal(seed, 3, (uint64_t(h) << 40) + (uint64_t(t) << 10) + c);
  }
  std::vector<float> Queries(const AttentionShape& shape) const {
    std::vector<float> q(shape.heads * shape.head_dim);
    for (size_t i = 0; i < q.size(); ++i) q[i] = 1.5f * Normal(seed, 4, i);
    return q;
  }
};

template <class Widths>
Cache MakeCache(const AttentionShape& shape, int tokens, const RandomNumbers& random, Widths widths) {
  return MakeCache(
      shape, tokens, [&](int h, int t, int c) { return random.Key(h, t, c); },
      [&](int h, int t, int c) { return random.Value(h, t, c); }, widths);
}

std::vector<float> Reference(const Cache& cache, const std::vector<float>& q) {
  std::vector<float> out(q.size());
  DecodeAttentionReference(cache.shape, cache.View(), q.data(), out.data());
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

// Reading error allowed, relative to the output: one 8-bit digit of the query (keys of 2 and 4 bits) or of
// the probabilities (values of 2 and 4 bits), 16 bits for INT8, float rounding for FP16.
double ReadingBound(Width key_width, Width value_width) {
  const auto bound = [](Width width, double digit) {
    return width == Width::kFp16 ? 3e-6 : width == Width::kInt8 ? 2e-4 : digit;
  };
  return bound(key_width, 0.015) + bound(value_width, 0.01);
}

const AttentionShape kShapes[] = {{1, 1, 16}, {6, 2, 64},  {4, 1, 80}, {7, 1, 128},
                                  {6, 1, 48}, {16, 1, 32}, {2, 2, 256}};

TEST(DecodeAttentionTest, EqualsReferenceForEveryWidthShapeLengthAndPath) {
  for (const AttentionShape& shape : kShapes) {
    const RandomNumbers random{uint64_t(shape.head_dim * 100 + shape.heads)};
    const std::vector<float> q = random.Queries(shape);
    for (Width key_width : kAllWidths) {
      for (Width value_width : kAllWidths) {
        const auto lengths =
            key_width == value_width ? std::vector{1, 63, 64, 65, 127, 128, 129, 331} : std::vector{65, 259};
        for (int tokens : lengths) {
          const Cache cache =
              MakeCache(shape, tokens, random, [&](int) { return std::pair(key_width, value_width); });
          const std::vector<float> expected = Reference(cache, q);
          for (const DecodePath& path : DecodePaths()) {
            EXPECT_LT(RelativeError(path.attend(shape, {cache.View()}, q), expected),
                      ReadingBound(key_width, value_width))
                << path.name << " keys " << Name(key_width) << " values " << Name(value_width)
                << " head_dim " << shape.head_dim << " group " << shape.group() << " tokens " << tokens;
          }
        }
      }
    }
  }
}

// A layer holds pages of all widths in any order, and a tail that is full but not sealed yet.
TEST(DecodeAttentionTest, MixedPagesAndAFullTail) {
  const AttentionShape shape = {6, 2, 64};
  const RandomNumbers random{5};
  const std::vector<float> q = random.Queries(shape);
  Cache cache = MakeCache(shape, 23 * 64, random, [](int page) {
    return std::pair(kAllWidths[page * 7 % 4], kAllWidths[page * 5 / 3 % 4]);
  });
  for (int tail : {0, 1, 64}) {
    cache.SetTail(tail, random, 23 * 64);
    const std::vector<float> expected = Reference(cache, q);
    for (const DecodePath& path : DecodePaths()) {
      EXPECT_LT(RelativeError(path.attend(shape, {cache.View()}, q), expected), 0.02)
          << path.name << " tail " << tail;
    }
  }
}

// Reading adds little to what the format itself costs: here the format's error is taken against the same
// numbers in FP16.
TEST(DecodeAttentionTest, ReadingErrorIsSmallBesideTheFormats) {
  const AttentionShape shape = {9, 3, 64};
  const RandomNumbers random{6};
  const std::vector<float> q = random.Queries(shape);
  const int tokens = 1024;
  const std::vector<float> exact = Reference(
      MakeCache(shape, tokens, random, [](int) { return std::pair(Width::kFp16, Width::kFp16); }), q);
  double previous = 10;
  for (Width width : {Width::kInt2, Width::kInt4, Width::kInt8}) {
    const Cache cache = MakeCache(shape, tokens, random, [&](int) { return std::pair(width, width); });
    const std::vector<float> expected = Reference(cache, q);
    const double format_error = RelativeError(expected, exact);
    EXPECT_LT(format_error, previous / 3) << Name(width);
    previous = format_error;
    for (const DecodePath& path : DecodePaths()) {
      const double reading_error = RelativeError(path.attend(shape, {cache.View()}, q), expected);
      RecordProperty(path.name + "_" + Name(width),
                     std::to_string(reading_error / format_error));
      EXPECT_LT(reading_error, format_error / 4) << path.name << " " << Name(width);
    }
  }
}

// What a sequence gets depends neither on its neighbours nor on who does the work: bit for bit.
TEST(DecodeAttentionTest, AloneAmongOthersAndInTwinsTheSameBits) {
  const AttentionShape shape = {6, 2, 64};
  std::vector<Cache> caches;
  std::vector<std::vector<float>> queries;
  for (int i = 0; i < 32; ++i) {
    const RandomNumbers random{uint64_t(i)};
    caches.push_back(MakeCache(shape, i == 7 ? 3000 : 1 + 37 * i, random, [i](int page) {
      return std::pair(kAllWidths[(i + page) % 4], kAllWidths[(i / 4 + page) % 4]);
    }));
    queries.push_back(random.Queries(shape));
  }
  std::vector<SequenceKv> batch;
  std::vector<float> q;
  for (int i = 0; i < 32; ++i) {
    batch.push_back(caches[i].View());
    q.insert(q.end(), queries[i].begin(), queries[i].end());
  }
  for (const DecodePath& path : DecodePaths()) {
    const std::vector<float> together = path.attend(shape, batch, q);
    for (const auto& twin : path.twins) EXPECT_EQ(twin(shape, batch, q), together) << path.name;
    for (int i : {0, 7, 31}) {
      const std::vector<float> alone = path.attend(shape, {batch[i]}, queries[i]);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + i * alone.size()))
          << path.name << " sequence " << i;
    }
  }
}

// A channel far from zero in all keys: a scale per channel loses nothing, one per token would lose the other
// channels.
TEST(DecodeAttentionTest, KeyChannelsWithALargeBias) {
  const AttentionShape shape = {2, 1, 64};
  const RandomNumbers plain{11};
  const auto key = [&](int h, int t, int c) { return plain.Key(h, t, c) + (c % 16 == 5 ? 50.0f : 0.0f); };
  const auto value = [&](int h, int t, int c) { return plain.Value(h, t, c); };
  std::vector<float> q = plain.Queries(shape);
  const int tokens = 256;
  const std::vector<float> exact = Reference(
      MakeCache(shape, tokens, key, value, [](int) { return std::pair(Width::kFp16, Width::kFp16); }), q);
  for (const auto& [width, bound] : {std::pair(Width::kInt4, 0.25), std::pair(Width::kInt2, 0.9)}) {
    const Cache cache =
        MakeCache(shape, tokens, key, value, [&](int) { return std::pair(width, Width::kFp16); });
    for (const DecodePath& path : DecodePaths()) {
      EXPECT_LT(RelativeError(path.attend(shape, {cache.View()}, q), exact), bound)
          << path.name << Name(width);
    }
    // The same bits spent on one scale and middle per token.
    const float levels = static_cast<float>((1 << Bits(width)) - 1);
    std::vector<float> rounded(tokens * 64);
    for (int t = 0; t < tokens; ++t) {
      float* x = &rounded[t * 64];
      for (int c = 0; c < 64; ++c) x[c] = key(0, t, c);
      const float min = *std::min_element(x, x + 64), scale = (*std::max_element(x, x + 64) - min) / levels;
      for (int c = 0; c < 64; ++c) x[c] = min + scale * std::nearbyint((x[c] - min) / scale);
    }
    const auto per_token = [&](int, int t, int c) { return rounded[t * 64 + c]; };
    const Cache worse =
        MakeCache(shape, tokens, per_token, value, [](int) { return std::pair(Width::kFp16, Width::kFp16); });
    EXPECT_GT(RelativeError(Reference(worse, q), exact), bound) << Name(width);
  }
}

// 128K tokens, one of which the query asks for: sums in too few bits would drown it, and the error must not
// grow with length.
TEST(DecodeAttentionTest, NeedleAmong128KTokens) {
  const AttentionShape shape = {1, 1, 64};
  const RandomNumbers random{12};
  std::vector<float> q(64);
  for (int c = 0; c < 64; ++c) q[c] = c % 2 ? 2.0f : -2.0f;
  double first_error[2] = {};
  for (int tokens : {2048, 131072}) {
    // All pages but one are the same page: only the needle's differs.
    const auto hay = MakeCache(shape, 64, random, [](int) { return std::pair(Width::kInt4, Width::kInt4); });
    const int needle = 17;
    const auto found = MakeCache(
        shape, 64, [&](int h, int t, int c) { return t == needle ? q[c] : random.Key(h, t, c); },
        [&](int h, int t, int c) { return t == needle ? 3.0f + c % 3 : random.Value(h, t, c); },
        [](int) { return std::pair(Width::kInt4, Width::kInt4); });
    Cache cache;
    cache.shape = shape;
    cache.key_pages.assign(tokens / 64, hay.key_pages[0]);
    cache.value_pages.assign(tokens / 64, hay.value_pages[0]);
    cache.key_pages[tokens / 64 / 3] = found.key_pages[0];
    cache.value_pages[tokens / 64 / 3] = found.value_pages[0];
    const std::vector<float> expected = Reference(cache, q);
    int i = 0;
    for (const DecodePath& path : {DecodePaths().front(), DecodePaths().back()}) {
      const double error = RelativeError(path.attend(shape, {cache.View()}, q), expected);
      EXPECT_LT(error, 0.02) << path.name << " " << tokens;
      if (tokens == 2048) {
        first_error[i++] = error;
      } else {
        EXPECT_LT(error, 2 * first_error[i++] + 1e-3) << path.name;
      }
    }
  }
}

TEST(DecodeAttentionTest, HugeLogitsPickOneToken) {
  const AttentionShape shape = {1, 1, 64};
  const RandomNumbers random{13};
  std::vector<float> q(64, 300.0f);
  const Cache cache = MakeCache(
      shape, 200, [](int, int t, int) { return t == 70 ? 200.0f : -200.0f + t; },  // logits of about ±4.8e5
      [&](int h, int t, int c) { return random.Value(h, t, c); },
      [](int) { return std::pair(Width::kFp16, Width::kFp16); });
  for (const DecodePath& path : DecodePaths()) {
    const std::vector<float> out = path.attend(shape, {cache.View()}, q);
    for (int c = 0; c < 64; ++c)
      EXPECT_NEAR(out[c], ToFloat(ToHalf(random.Value(0, 70, c))), 1e-6) << path.name;
  }
}

// Inputs that no model should make must not trap, loop or poison other heads.
TEST(DecodeAttentionTest, InfiniteAndNanInputsStayInTheirHead) {
  const AttentionShape shape = {2, 2, 64};
  const RandomNumbers random{14};
  const std::vector<float> q = random.Queries(shape);
  for (Width width : kAllWidths) {
    const Cache good = MakeCache(shape, 200, random, [&](int) { return std::pair(width, width); });
    for (float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
      const Cache cache = MakeCache(
          shape, 200,
          [&](int h, int t, int c) { return h == 0 && t == 3 && c == 4 ? bad : random.Key(h, t, c); },
          [&](int h, int t, int c) { return h == 0 && t == 5 && c == 6 ? bad : random.Value(h, t, c); },
          [&](int) { return std::pair(width, width); });
      for (const DecodePath& path : DecodePaths()) {
        const std::vector<float> out = path.attend(shape, {cache.View()}, q),
                                 clean = path.attend(shape, {good.View()}, q);
        EXPECT_FALSE(std::isfinite(out[6])) << path.name << " " << Name(width) << " " << bad;
        EXPECT_TRUE(std::equal(out.begin() + 64, out.end(), clean.begin() + 64))
            << path.name << " " << Name(width);
        std::vector<float> bad_q = q;
        bad_q[70] = bad;
        const std::vector<float> bad_out = path.attend(shape, {good.View()}, bad_q);
        EXPECT_TRUE(std::equal(bad_out.begin(), bad_out.begin() + 64, clean.begin()))
            << path.name << " " << Name(width);
      }
    }
  }
}

}  // namespace
}  // namespace stria
