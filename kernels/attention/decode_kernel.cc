// Decode attention over one run of pages (kernels/attention/decode_kernel.h), in terms of kernels/simd. One
// online softmax goes over pages of all widths: integer pages by code_dots.h, FP16 pages and tails by plain
// multiply-adds.
#include "kernels/attention/decode_kernel.h"

#include <algorithm>

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

// One head's slice of a page, or of the tail.
struct SliceRef {
  const uint8_t* data;
  const uint8_t* ahead;  // what is prefetched meanwhile, line for line
  Width width;
  int tokens;
};

// Pages whose scores share one softmax step.
struct Chunk {
  SliceRef keys[kChunkPages];
  SliceRef values[kChunkPages];
  int pages = 0;
  int tokens() const { return (pages - 1) * kPageTokens + keys[pages - 1].tokens; }
};

// The weights of integer pages are folded for the whole chunk before the first is used: what ends a page's
// fold, one number waiting for another, runs beside the next page's.
template <int G>
void KeyScores(const Chunk& chunk, int dim, const float* q, float* scores) {
  FoldedWeights w[kChunkPages];
  for (int i = 0; i < chunk.pages; ++i) {
    const SliceRef& s = chunk.keys[i];
    switch (s.width) {
      case Width::kInt2: FoldScales<2, G, true>(s.data, s.ahead, dim, q, dim, w[i]); break;
      case Width::kInt4: FoldScales<4, G, true>(s.data, s.ahead, dim, q, dim, w[i]); break;
      case Width::kInt8: FoldScales<8, G, true>(s.data, s.ahead, dim, q, dim, w[i]); break;
      case Width::kFp16: break;
    }
  }
  for (int i = 0; i < chunk.pages; ++i) {
    const SliceRef& s = chunk.keys[i];
    const uint8_t *codes = s.data + 4 * dim, *ahead = s.ahead + 4 * dim;
    constexpr int kBlocks = kPageTokens / 16;
    float* const to = scores + i * kPageTokens;
    switch (s.width) {
      case Width::kInt2: AddCodeDots<2, G, true>(codes, ahead, kBlocks, dim, w[i], to, kScoreStride); break;
      case Width::kInt4: AddCodeDots<4, G, true>(codes, ahead, kBlocks, dim, w[i], to, kScoreStride); break;
      case Width::kInt8: AddCodeDots<8, G, true>(codes, ahead, kBlocks, dim, w[i], to, kScoreStride); break;
      case Width::kFp16:
        HalfScores<G>(reinterpret_cast<const Half*>(s.data), s.ahead, s.tokens, dim, q, to);
        break;
    }
  }
}

template <int G>
void AddValues(const Chunk& chunk, int dim, const float* p, float* partial, float* shared) {
  FoldedWeights w[kChunkPages];
  for (int i = 0; i < chunk.pages; ++i) {
    const SliceRef& s = chunk.values[i];
    const float* const from = p + i * kPageTokens;
    switch (s.width) {
      case Width::kInt2: FoldScales<2, G, false>(s.data, s.ahead, kPageTokens, from, kScoreStride, w[i]); break;
      case Width::kInt4: FoldScales<4, G, false>(s.data, s.ahead, kPageTokens, from, kScoreStride, w[i]); break;
      case Width::kInt8: FoldScales<8, G, false>(s.data, s.ahead, kPageTokens, from, kScoreStride, w[i]); break;
      case Width::kFp16: continue;
    }
    for (int g = 0; g < G; ++g) shared[g] += w[i].base[g];
  }
  const int stride = PartialFloats(dim);
  for (int i = 0; i < chunk.pages; ++i) {
    const SliceRef& s = chunk.values[i];
    const uint8_t *codes = s.data + 4 * kPageTokens, *ahead = s.ahead + 4 * kPageTokens;
    const int blocks = dim / 16;
    switch (s.width) {
      case Width::kInt2: AddCodeDots<2, G, false>(codes, ahead, blocks, kPageTokens, w[i], partial, stride); break;
      case Width::kInt4: AddCodeDots<4, G, false>(codes, ahead, blocks, kPageTokens, w[i], partial, stride); break;
      case Width::kInt8: AddCodeDots<8, G, false>(codes, ahead, blocks, kPageTokens, w[i], partial, stride); break;
      case Width::kFp16:
        HalfValues<G>(reinterpret_cast<const Half*>(s.data), s.ahead, s.tokens, dim, p + i * kPageTokens, partial);
        break;
    }
  }
}

// Online softmax: scores become 2^(score − max), what was summed before is scaled to the new maximum.
template <int G>
void Softmax(int count, int dim, float* scores, float* partial, float* shared) {
  const int padded = (count + kPageTokens - 1) / kPageTokens * kPageTokens;
  for (int g = 0; g < G; ++g) {
    float* const s = scores + g * kScoreStride;
    float* const acc = partial + g * PartialFloats(dim);
    float& sum_so_far = acc[dim];
    float& max_so_far = acc[dim + 1];
    for (int t = count; t < padded; ++t) s[t] = -__builtin_inff();  // weighs nothing
    F chunk_max = Set(max_so_far);
    for (int t = 0; t < padded; t += kLanes) chunk_max = Max(chunk_max, Load(s + t));
    const float max = ReduceMax(chunk_max);
    if (max != max_so_far) {
      alignas(64) float rescale[kLanes];
      Store(rescale, Exp2(Set(max_so_far - max)));
      for (int c = 0; c < dim; c += kLanes) Store(acc + c, Load(acc + c) * Set(rescale[0]));
      sum_so_far *= rescale[0];
      shared[g] *= rescale[0];
      max_so_far = max;
    }
    F sum = Set(0.0f);
    for (int t = 0; t < padded; t += kLanes) {
      const F p = Exp2(Load(s + t) - Set(max));
      Store(s + t, p);
      sum = sum + p;
    }
    sum_so_far += ReduceAdd(sum);
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

// Prefetches the lines that the slice ahead has more of.
void PrefetchRest(const uint8_t* slice, size_t from, size_t to) {
  for (; from < to; from += 64) Prefetch(slice + from);
}

// Makes s the slice at `at` of pages with `scales` scales each; beside it `next` is prefetched. Field by field: a
// struct that is written in parts and then copied whole waits for its parts to reach the cache.
void SetSlice(const PageRef* KvRun::*pages, int scales, int dim, Position at, Position next, SliceRef& s) {
  const PageRef& page = (at.run->*pages)[at.page];
  s.data = Slice(page, scales, dim, at.run->kv_head);
  s.width = page.width;
  s.tokens = kPageTokens;
  s.ahead = s.data;
  if (next.exists()) {
    const PageRef& other = (next.run->*pages)[next.page];
    s.ahead = Slice(other, scales, dim, next.run->kv_head);
    PrefetchRest(s.ahead, SliceBytes(scales, dim, s.width), SliceBytes(scales, dim, other.width));
  }
}

void SetTail(const Half* data, int tokens, SliceRef& s) {
  s.data = s.ahead = reinterpret_cast<const uint8_t*>(data);
  s.width = Width::kFp16;
  s.tokens = tokens;
}

// The chunk that begins at page `begin`; the tail counts as one more page.
void SetChunk(const DecodeRunArgs& a, int begin, Chunk& chunk) {
  // Some 4 KiB of keys: enough to make up for the softmax, near enough that what is prefetched a chunk ahead stays cached.
  const int slices = a.run.pages + (a.run.tail > 0);
  int pages = 0;
  for (size_t bytes = 0; begin + pages < slices && pages < kChunkPages && bytes < 4096; ++pages) {
    const int i = begin + pages;
    bytes += SliceBytes(a.head_dim, a.head_dim, i < a.run.pages ? a.run.key_pages[i].width : Width::kFp16);
  }
  chunk.pages = pages;
  for (int i = 0; i < pages; ++i) {
    if (begin + i == a.run.pages) {
      SetTail(a.run.key_tail, a.run.tail, chunk.keys[i]);
      SetTail(a.run.value_tail, a.run.tail, chunk.values[i]);
      break;
    }
    const Position at = {&a.run, begin + i}, next = PositionOf(a, begin + i + pages);
    SetSlice(&KvRun::key_pages, a.head_dim, a.head_dim, at, next, chunk.keys[i]);
    SetSlice(&KvRun::value_pages, kPageTokens, a.head_dim, at, next, chunk.values[i]);
  }
}

}  // namespace

void DecodeRun(const DecodeRunArgs& a) {
  const int dim = a.head_dim, group = a.group, stride = PartialFloats(dim);
  alignas(64) float q[kMaxGroup * kMaxHeadDim];
  float shared[kMaxGroup];  // Σ p·v of integer pages, as far as it is the same for all channels
  for (int i = 0; i < group * dim; i += kLanes) Store(q + i, Load(a.q + i) * Set(a.q_scale));
  for (int g = 0; g < group; ++g) {
    float* const acc = a.partial + g * stride;
    for (int c = 0; c < dim; c += kLanes) Store(acc + c, Set(0.0f));
    acc[dim] = shared[g] = 0.0f;
    acc[dim + 1] = -__builtin_inff();
  }
  const int slices = a.run.pages + (a.run.tail > 0);
  Chunk chunk;
  for (int begin = 0; begin < slices; begin += chunk.pages) {
    SetChunk(a, begin, chunk);
    ForHeads<kMaxHeads>(group, [&]<int G>(int g) {
      float* const scores = a.scores + g * kScoreStride;
      float* const partial = a.partial + g * stride;
      KeyScores<G>(chunk, dim, q + g * dim, scores);
      Softmax<G>(chunk.tokens(), dim, scores, partial, shared + g);
      AddValues<G>(chunk, dim, scores, partial, shared + g);
    });
  }
  for (int g = 0; g < group; ++g) {
    float* const acc = a.partial + g * stride;
    for (int c = 0; c < dim; c += kLanes) Store(acc + c, Load(acc + c) + Set(shared[g]));
  }
}

void MergeRuns(const MergeRunsArgs& a) {
  const int dim = a.head_dim;
  for (int g = 0; g < a.group; ++g) {
    const float* const first = a.partials + g * PartialFloats(dim);
    float* const out = a.out + g * dim;
    float max = first[dim + 1], sum = 0;
    for (int i = 1; i < a.runs; ++i) max = std::max(max, first[i * a.stride + dim + 1]);
    for (int c = 0; c < dim; c += kLanes) Store(out + c, Set(0.0f));
    for (int i = 0; i < a.runs; ++i) {
      const float* const partial = first + i * a.stride;
      alignas(64) float factor[kLanes];
      Store(factor, Exp2(Set(partial[dim + 1] - max)));
      sum += factor[0] * partial[dim];
      for (int c = 0; c < dim; c += kLanes)
        Store(out + c, Fma(Set(factor[0]), Load(partial + c), Load(out + c)));
    }
    for (int c = 0; c < dim; c += kLanes) Store(out + c, Load(out + c) * Set(1.0f / sum));
  }
}

}  // namespace stria::STRIA_SIMD
