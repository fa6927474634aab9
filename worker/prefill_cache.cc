#include "worker/prefill_cache.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/format/seal.h"

namespace stria {
namespace {

constexpr int kRowsWorthATeam = 32;
constexpr int kPagesWorthATeam = 8;

template <typename T>
AlignedBuffer<T> Staged(size_t count, bool poison) {
  AlignedBuffer<T> buffer(count);
  if (poison) std::memset(static_cast<void*>(buffer.data()), 0xFF, buffer.bytes());
  return buffer;
}

}  // namespace

std::unique_ptr<PromptStaging> PromptStaging::Take(const CacheLayout& layout, int hidden,
                                                   const PromptShape& shape, PagePool& pool, bool poison) {
  const size_t tokens = shape.tokens;
  const uint64_t bytes = layout.StagingBytes(shape.tokens, shape.shared);
  if (!pool.Charge(bytes)) return nullptr;
  std::unique_ptr<PromptStaging> staging(new PromptStaging(pool, bytes, hidden));
  const size_t elements = tokens * layout.shape().kv_heads * layout.shape().head_dim;
  staging->keys_ = Staged<Half>(elements, poison);
  staging->values_ = Staged<Half>(elements, poison);
  staging->votes_ = Staged<float>(tokens * layout.shape().kv_heads, poison);
  staging->residual_ = Staged<float>((tokens - shape.shared) * hidden, poison);
  staging->prompt_ = {.shape = shape,
                      .keys = staging->keys_.data(),
                      .values = staging->values_.data(),
                      .head_stride = static_cast<ptrdiff_t>(tokens) * layout.shape().head_dim,
                      .votes = staging->votes_.data(),
                      .poison = poison};
  return staging;
}

PrefillCache::PrefillCache(const CacheLayout& layout, Target target, int threads)
    : layout_(layout),
      target_(target),
      threads_(threads),
      attention_(PrefillAttention::Create(layout.shape(), target, threads)),
      eviction_(layout, target, threads) {}

void PrefillCache::SetChunk(SequenceCache& sequence, SequenceCache* shadow, PromptStaging& staging, uint32_t begin,
                            uint32_t end) {
  STRIA_CHECK(shadow == nullptr || sequence.shared_pages() == 0);
  sequence_ = &sequence;
  shadow_ = shadow;
  staging_ = &staging;
  begin_ = begin;
  end_ = end;
}

void PrefillCache::AppendAndAttend(int layer, const AttentionRows& rows) {
  STRIA_CHECK(rows.rows == static_cast<int>(end_ - begin_));
  const CachePlan& plan = sequence_->plan();
  const StagedPrompt& prompt = staging_->prompt();
  const auto [tokens, original, evicted, shared] = prompt.shape;
  // Delivered tokens follow what stays of the original prompt.
  const uint32_t index = begin_ - (begin_ >= original ? evicted : 0);
  if (plan.Holds(layer)) {
    if (begin_ == shared) StageShared(layer);
    Append(rows, index);
  }
  attention_->Run({.query_begin = static_cast<int>(index),
                   .query_end = static_cast<int>(index) + rows.rows,
                   .q = rows.q,
                   .keys = {prompt.keys, prompt.head_stride},
                   .values = {prompt.values, prompt.head_stride},
                   .out = rows.out});
  const bool last_reader = plan.GroupEnd(layer) == static_cast<size_t>(layer) + 1;
  if (evicted > 0 && end_ <= original) {
    eviction_.Observe(prompt, plan.Holds(layer) && begin_ == 0, begin_, end_, rows.q);
    if (end_ == original && last_reader) eviction_.Compact(prompt);
  }
  if (end_ < tokens || !last_reader) return;
  const auto anchor = static_cast<int>(plan.Anchor(layer));
  sealed_ += uint64_t{2} * ((tokens - evicted) / kPageTokens - sequence_->shared_pages());
  for (SequenceCache* to : {sequence_, shadow_}) {
    if (to == nullptr) continue;
    SealLayer(*to, anchor, tokens - evicted);
    FillRing(*to, anchor, tokens - evicted);
  }
}

void PrefillCache::StageShared(int layer) {
  const AttentionShape& shape = layout_.shape();
  const StagedPrompt& prompt = staging_->prompt();
  const int pages = static_cast<int>(sequence_->shared_pages());
#pragma omp parallel for num_threads(threads_) if (pages >= kPagesWorthATeam)
  for (int page = 0; page < pages; ++page) {
    const size_t first = size_t(page) * kPageTokens * shape.head_dim;
    StageKeys(target_, shape, sequence_->key_pages(layer)[page], prompt.keys + first, prompt.head_stride);
    StageValues(target_, shape, sequence_->value_pages(layer)[page], prompt.values + first, prompt.head_stride);
  }
}

void PrefillCache::Append(const AttentionRows& rows, uint32_t index) {
  const AttentionShape& shape = layout_.shape();
  const StagedPrompt& prompt = staging_->prompt();
  const size_t width = size_t(shape.kv_heads) * shape.head_dim;
#pragma omp parallel for num_threads(threads_) if (rows.rows >= kRowsWorthATeam)
  for (int i = 0; i < rows.rows; ++i)
    AppendToken(target_, shape, rows.k + i * width, rows.v + i * width, static_cast<int>(index) + i, prompt.keys,
                prompt.values, prompt.head_stride);
}

void PrefillCache::SealLayer(SequenceCache& to, int layer, uint32_t tokens) {
  const StagedPrompt& prompt = staging_->prompt();
  const int dim = layout_.shape().head_dim;
  const int begin = static_cast<int>(to.shared_pages()), end = static_cast<int>(tokens / kPageTokens);
#pragma omp parallel for num_threads(threads_) if (end - begin >= kPagesWorthATeam)
  for (int page = begin; page < end; ++page) {
    const size_t first = size_t(page) * kPageTokens * dim;
    to.SealKeyPage(target_, layer, page, {prompt.keys + first, prompt.head_stride});
    to.SealValuePage(target_, layer, page, {prompt.values + first, prompt.head_stride});
  }
}

void PrefillCache::FillRing(SequenceCache& to, int layer, uint32_t tokens) {
  const AttentionShape& shape = layout_.shape();
  const StagedPrompt& prompt = staging_->prompt();
  const size_t row = size_t(shape.head_dim) * sizeof(Half);
  Half* keys = to.key_ring(layer);
  Half* values = to.value_tail(layer);
  // Shared tokens are not what was computed, but what a page made of it: the ring begins behind them.
  const uint32_t computed = tokens - prompt.shape.shared;
  for (int head = 0; head < shape.kv_heads; ++head) {
    for (uint32_t index = tokens - std::min<uint32_t>(computed, kPageTokens); index < tokens; ++index) {
      const size_t slot = (size_t(head) * kPageTokens + index % kPageTokens) * shape.head_dim;
      const size_t from = size_t(head) * prompt.head_stride + size_t(index) * shape.head_dim;
      std::memcpy(keys + slot, prompt.keys + from, row);
      std::memcpy(values + slot, prompt.values + from, row);
    }
  }
}

}  // namespace stria
