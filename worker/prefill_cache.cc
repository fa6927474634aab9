#include "worker/prefill_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "kernels/format/seal.h"

namespace stria {
namespace {

constexpr int kRowsWorthATeam = 32;
constexpr int kPagesWorthATeam = 8;

template <typename T>
T* AlignedArray(size_t count, bool poison) {
  const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
  void* memory = std::aligned_alloc(64, bytes);
  STRIA_CHECK(memory != nullptr);
  if (poison) std::memset(memory, 0xFF, bytes);
  return static_cast<T*>(memory);
}

}  // namespace

void PromptStaging::Free::operator()(void* memory) const { std::free(memory); }

std::unique_ptr<PromptStaging> PromptStaging::Take(const CacheLayout& layout, int hidden, uint32_t tokens,
                                                   PagePool& pool, bool poison) {
  const uint64_t bytes = tokens * layout.staging_bytes_per_token();
  if (!pool.Charge(bytes)) return nullptr;
  std::unique_ptr<PromptStaging> staging(new PromptStaging(pool, bytes, tokens));
  const size_t elements = size_t{tokens} * layout.shape().kv_heads * layout.shape().head_dim;
  staging->keys_.reset(AlignedArray<Half>(elements, poison));
  staging->values_.reset(AlignedArray<Half>(elements, poison));
  staging->residual_.reset(AlignedArray<float>(size_t{tokens} * hidden, poison));
  return staging;
}

PrefillCache::PrefillCache(const CacheLayout& layout, Target target, int threads)
    : layout_(layout),
      target_(target),
      threads_(threads),
      attention_(PrefillAttention::Create(layout.shape(), target, threads)) {}

void PrefillCache::SetChunk(SequenceCache& sequence, PromptStaging& staging, uint32_t begin, uint32_t end) {
  sequence_ = &sequence;
  staging_ = &staging;
  begin_ = begin;
  end_ = end;
}

void PrefillCache::AppendAndAttend(int layer, const AttentionRows& rows) {
  STRIA_CHECK(rows.rows == static_cast<int>(end_ - begin_));
  Append(rows);
  const ptrdiff_t stride = static_cast<ptrdiff_t>(staging_->tokens()) * layout_.shape().head_dim;
  attention_->Run({.query_begin = static_cast<int>(begin_),
                   .query_end = static_cast<int>(end_),
                   .q = rows.q,
                   .keys = {staging_->keys(), stride},
                   .values = {staging_->values(), stride},
                   .out = rows.out});
  if (end_ < staging_->tokens()) return;
  SealLayer(layer);
  FillRing(layer);
}

void PrefillCache::Append(const AttentionRows& rows) {
  const AttentionShape& shape = layout_.shape();
  const ptrdiff_t stride = static_cast<ptrdiff_t>(staging_->tokens()) * shape.head_dim;
  const size_t width = size_t(shape.kv_heads) * shape.head_dim;
#pragma omp parallel for num_threads(threads_) if (rows.rows >= kRowsWorthATeam)
  for (int i = 0; i < rows.rows; ++i)
    AppendToken(target_, shape, rows.k + i * width, rows.v + i * width, static_cast<int>(begin_) + i,
                staging_->keys(), staging_->values(), stride);
}

void PrefillCache::SealLayer(int layer) {
  const int dim = layout_.shape().head_dim;
  const ptrdiff_t stride = static_cast<ptrdiff_t>(staging_->tokens()) * dim;
  const int pages = static_cast<int>(staging_->tokens() / kPageTokens);
#pragma omp parallel for num_threads(threads_) if (pages >= kPagesWorthATeam)
  for (int page = 0; page < pages; ++page) {
    const size_t first = size_t(page) * kPageTokens * dim;
    sequence_->SealKeyPage(target_, layer, page, {staging_->keys() + first, stride});
    sequence_->SealValuePage(target_, layer, page, {staging_->values() + first, stride});
  }
}

void PrefillCache::FillRing(int layer) {
  const AttentionShape& shape = layout_.shape();
  const uint32_t tokens = staging_->tokens();
  const size_t row = size_t(shape.head_dim) * sizeof(Half);
  Half* keys = sequence_->key_ring(layer);
  Half* values = sequence_->value_tail(layer);
  for (int head = 0; head < shape.kv_heads; ++head) {
    for (uint32_t position = tokens - std::min<uint32_t>(tokens, kPageTokens); position < tokens;
         ++position) {
      const size_t to = (size_t(head) * kPageTokens + position % kPageTokens) * shape.head_dim;
      const size_t from = (size_t(head) * tokens + position) * shape.head_dim;
      std::memcpy(keys + to, staging_->keys() + from, row);
      std::memcpy(values + to, staging_->values() + from, row);
    }
  }
}

}  // namespace stria
