// Decode attention over one run of pages (kernels/attention/decode_kernel.h), in terms of kernels/simd. One
// online softmax goes over pages of all widths: integer pages by code_dots.h, FP16 pages and tails by plain
// multiply-adds.
#include "kernels/attention/decode_kernel.h"

#include "kernels/attention/code_dots.h"
#include "kernels/simd/for_heads.h"

namespace stria::STRIA_SIMD {
namespace {

constexpr int kScoreStride = kChunkPages * kPageTokens;

constexpr size_t SliceBytes(int scales, int head_dim, Width width) {
  return width == Width::kFp16 ? size_t{2} * kPageTokens * head_dim
                               : size_t{4} * scales + size_t{8} * head_dim * static_cast<int>(width);
}
const uint8_t* Slice(const PageRef& page, int scales, int head_dim, int kv_head) {
  return static_cast<const uint8_t*>(page.data) + kv_head * SliceBytes(scales, head_dim, page.width);
}

// ---- Integer pages ----

// scores[g][t] = q_g · k_t
template <int bits, int G>
void IntScores(const uint8_t* slice, const uint8_t* ahead, int head_dim, const float* q, float* scores) {
  FoldedWeights w;
  FoldScales<bits, G, true>(slice, ahead, head_dim, q, head_dim, w);
  AddCodeDots<bits, G, true>(slice + 4 * head_dim, ahead + 4 * head_dim, kPageTokens / 16, head_dim, w,
                             scores, kScoreStride);
}

// partial[g] += Σ_t p_gt · v_t. What is the same for all channels goes to shared[g].
template <int bits, int G>
void IntValues(const uint8_t* slice, const uint8_t* ahead, int head_dim, const float* p, float* partial,
               float* shared) {
  FoldedWeights w;
  FoldScales<bits, G, false>(slice, ahead, kPageTokens, p, kScoreStride, w);
  for (int g = 0; g < G; ++g) shared[g] += w.base[g];
  AddCodeDots<bits, G, false>(slice + 4 * kPageTokens, ahead + 4 * kPageTokens, head_dim / 16, kPageTokens, w,
                              partial, PartialFloats(head_dim));
}

// ---- FP16 pages and tails ----

template <int G>
void HalfScores(const Half* keys, const uint8_t* ahead, int tokens, int head_dim, const float* q,
                float* scores) {
  int t = 0;
  for (; t + 4 <= tokens; t += 4) {
    F sum[4][G];
    for (int i = 0; i < 4; ++i) {
      for (int g = 0; g < G; ++g) sum[i][g] = Set(0.0f);
    }
    const Half* k = keys + t * head_dim;
    for (int c = 0; c < head_dim; c += 8) Prefetch(ahead + 2 * t * head_dim + 8 * c);
    for (int c = 0; c < head_dim; c += kLanes) {
      F x[4];
      for (int i = 0; i < 4; ++i) x[i] = LoadHalf(k + i * head_dim + c);
      for (int g = 0; g < G; ++g) {
        const F y = Load(q + g * head_dim + c);
        for (int i = 0; i < 4; ++i) sum[i][g] = Fma(x[i], y, sum[i][g]);
      }
    }
    for (int g = 0; g < G; ++g)
      StoreSums4(scores + g * kScoreStride + t, sum[0][g], sum[1][g], sum[2][g], sum[3][g]);
  }
  for (; t < tokens; ++t) {
    for (int g = 0; g < G; ++g) {
      F sum = Set(0.0f);
      for (int c = 0; c < head_dim; c += kLanes) {
        sum = Fma(LoadHalf(keys + t * head_dim + c), Load(q + g * head_dim + c), sum);
      }
      scores[g * kScoreStride + t] = ReduceAdd(sum);
    }
  }
}

template <int G, int kVectors>
void HalfValuesOfChannels(const Half* values, const uint8_t* ahead, int tokens, int head_dim, const float* p,
                          float* partial) {
  F sum[kVectors][G];
  for (int v = 0; v < kVectors; ++v) {
    for (int g = 0; g < G; ++g) sum[v][g] = Load(partial + g * PartialFloats(head_dim) + v * kLanes);
  }
  for (int t = 0; t < tokens; ++t) {
    Prefetch(ahead + 2 * t * head_dim);
    if (kVectors * kLanes > 32) Prefetch(ahead + 2 * t * head_dim + 64);
    F x[kVectors];
    for (int v = 0; v < kVectors; ++v) x[v] = LoadHalf(values + t * head_dim + v * kLanes);
    for (int g = 0; g < G; ++g) {
      const F weight = Set(p[g * kScoreStride + t]);
      for (int v = 0; v < kVectors; ++v) sum[v][g] = Fma(weight, x[v], sum[v][g]);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    for (int g = 0; g < G; ++g) Store(partial + g * PartialFloats(head_dim) + v * kLanes, sum[v][g]);
  }
}

template <int G>
void HalfValues(const Half* values, const uint8_t* ahead, int tokens, int head_dim, const float* p,
                float* partial) {
  constexpr int kWide = 4 * kLanes;
  int c = 0;
  for (; c + kWide <= head_dim; c += kWide)
    HalfValuesOfChannels<G, 4>(values + c, ahead + 2 * c, tokens, head_dim, p, partial + c);
  for (; c < head_dim; c += kLanes)
    HalfValuesOfChannels<G, 1>(values + c, ahead + 2 * c, tokens, head_dim, p, partial + c);
}

// ---- The run ----

template <int G>
void Scores(const uint8_t* slice, const uint8_t* ahead, Width width, int tokens, int head_dim, const float* q,
            float* scores) {
  switch (width) {
    case Width::kInt2: return IntScores<2, G>(slice, ahead, head_dim, q, scores);
    case Width::kInt4: return IntScores<4, G>(slice, ahead, head_dim, q, scores);
    case Width::kInt8: return IntScores<8, G>(slice, ahead, head_dim, q, scores);
    case Width::kFp16:
      return HalfScores<G>(reinterpret_cast<const Half*>(slice), ahead, tokens, head_dim, q, scores);
  }
}

template <int G>
void Values(const uint8_t* slice, const uint8_t* ahead, Width width, int tokens, int head_dim, const float* p,
            float* partial, float* shared) {
  switch (width) {
    case Width::kInt2: return IntValues<2, G>(slice, ahead, head_dim, p, partial, shared);
    case Width::kInt4: return IntValues<4, G>(slice, ahead, head_dim, p, partial, shared);
    case Width::kInt8: return IntValues<8, G>(slice, ahead, head_dim, p, partial, shared);
    case Width::kFp16:
      return HalfValues<G>(reinterpret_cast<const Half*>(slice), ahead, tokens, head_dim, p, partial);
  }
}

// Page i of the run, counting on into what the thread reads next.
struct Position {
  const KvRun* run;
  int page;
  bool exists() const { return page < run->pages; }
};
Position PositionOf(const DecodeRunArgs& a, int i) {
  return i < a.run.pages ? Position{&a.run, i} : Position{&a.ahead, i - a.run.pages};
}
const uint8_t* KeySlice(const DecodeRunArgs& a, Position at) {
  return Slice(at.run->key_pages[at.page], a.head_dim, a.head_dim, at.run->kv_head);
}
const uint8_t* ValueSlice(const DecodeRunArgs& a, Position at) {
  return Slice(at.run->value_pages[at.page], kPageTokens, a.head_dim, at.run->kv_head);
}

// While one slice is worked on, another is prefetched line for line; these are the lines it has more of.
void PrefetchRest(const uint8_t* slice, size_t from, size_t to) {
  for (; from < to; from += 64) Prefetch(slice + from);
}

}  // namespace

void DecodeRun(const DecodeRunArgs& a) {
  const int dim = a.head_dim, group = a.group, stride = PartialFloats(dim);
  float* const sums = a.partial + dim;        // Σ p of head g at sums[g * stride]
  float* const maxima = a.partial + dim + 1;  // and its running maximum
  alignas(64) float q[kMaxGroup * kMaxHeadDim];
  float shared[kMaxGroup];
  for (int i = 0; i < group * dim; i += kLanes) Store(q + i, Load(a.q + i) * Set(a.q_scale));
  for (int g = 0; g < group; ++g) {
    for (int c = 0; c < dim; c += kLanes) Store(a.partial + g * stride + c, Set(0.0f));
    sums[g * stride] = shared[g] = 0.0f;
    maxima[g * stride] = -__builtin_inff();
  }

  // The tail counts as one more page.
  const int slices = a.run.pages + (a.run.tail > 0);
  const auto tokens = [&](int i) { return i < a.run.pages ? kPageTokens : a.run.tail; };
  const auto width_of = [&](int i, const PageRef* pages) {
    return i < a.run.pages ? pages[i].width : Width::kFp16;
  };
  for (int begin = 0, end; begin < slices; begin = end) {
    // A chunk is worth some 4 KiB of keys: enough to make up for the softmax, few enough to stay in the first
    // cache.
    size_t chunk_bytes = 0;
    for (end = begin; end < slices && end - begin < kChunkPages && chunk_bytes < 4096; ++end) {
      chunk_bytes += SliceBytes(dim, dim, width_of(end, a.run.key_pages));
    }
    const int distance = end - begin;  // pages that prefetching is ahead

    for (int i = begin; i < end; ++i) {
      const Width width = width_of(i, a.run.key_pages);
      const uint8_t* slice =
          i < a.run.pages ? KeySlice(a, {&a.run, i}) : reinterpret_cast<const uint8_t*>(a.run.key_tail);
      const Position next = PositionOf(a, i + distance);
      const uint8_t* ahead = slice;
      if (next.exists()) {
        ahead = KeySlice(a, next);
        PrefetchRest(ahead, SliceBytes(dim, dim, width),
                     SliceBytes(dim, dim, next.run->key_pages[next.page].width));
      }
      ForHeads<kMaxHeads>(group, [&]<int G>(int g) {
        Scores<G>(slice, ahead, width, tokens(i), dim, q + g * dim,
                  a.scores + g * kScoreStride + (i - begin) * kPageTokens);
      });
    }

    // Online softmax over the chunk; lanes past the last token weigh nothing.
    const int count = (end - begin - 1) * kPageTokens + tokens(end - 1);
    const int padded = (count + kPageTokens - 1) / kPageTokens * kPageTokens;
    for (int g = 0; g < group; ++g) {
      float* const s = a.scores + g * kScoreStride;
      for (int t = count; t < padded; ++t) s[t] = -__builtin_inff();
      F chunk_max = Set(maxima[g * stride]);
      for (int t = 0; t < padded; t += kLanes) chunk_max = Max(chunk_max, Load(s + t));
      const float max = ReduceMax(chunk_max);
      if (max != maxima[g * stride]) {
        alignas(64) float rescale[kLanes];
        Store(rescale, Exp2(Set(maxima[g * stride] - max)));
        const F factor = Set(rescale[0]);
        float* const acc = a.partial + g * stride;
        for (int c = 0; c < dim; c += kLanes) Store(acc + c, Load(acc + c) * factor);
        sums[g * stride] *= rescale[0];
        shared[g] *= rescale[0];
        maxima[g * stride] = max;
      }
      F sum = Set(0.0f);
      for (int t = 0; t < padded; t += kLanes) {
        const F p = Exp2(Load(s + t) - Set(max));
        Store(s + t, p);
        sum = sum + p;
      }
      sums[g * stride] += ReduceAdd(sum);
    }

    for (int i = begin; i < end; ++i) {
      const Width width = width_of(i, a.run.value_pages);
      const uint8_t* slice =
          i < a.run.pages ? ValueSlice(a, {&a.run, i}) : reinterpret_cast<const uint8_t*>(a.run.value_tail);
      const Position next = PositionOf(a, i + distance);
      const uint8_t* ahead = slice;
      if (next.exists()) {
        ahead = ValueSlice(a, next);
        PrefetchRest(ahead, SliceBytes(kPageTokens, dim, width),
                     SliceBytes(kPageTokens, dim, next.run->value_pages[next.page].width));
      }
      ForHeads<kMaxHeads>(group, [&]<int G>(int g) {
        Values<G>(slice, ahead, width, tokens(i), dim,
                  a.scores + g * kScoreStride + (i - begin) * kPageTokens, a.partial + g * stride,
                  shared + g);
      });
    }
  }
  for (int g = 0; g < group; ++g) {
    float* const acc = a.partial + g * stride;
    for (int c = 0; c < dim; c += kLanes) Store(acc + c, Load(acc + c) + Set(shared[g]));
  }
}

}  // namespace stria::STRIA_SIMD
