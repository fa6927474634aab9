#include "worker/decode_cache.h"

#include "base/check.h"
#include "kernels/format/seal.h"

namespace stria {

DecodeCache::DecodeCache(const CacheLayout& layout, Target target, int threads, uint32_t max_sequences)
    : layout_(layout),
      target_(target),
      threads_(threads),
      attention_(DecodeAttention::Create(layout.shape(), target, threads)) {
  batch_.reserve(max_sequences);
  tokens_.reserve(max_sequences);
  full_.reserve(max_sequences);
  views_.reserve(size_t{max_sequences} * layout.layers());
}

void DecodeCache::Begin(std::span<SequenceCache* const> batch, CanaryProbe* probe) {
  batch_.assign(batch.begin(), batch.end());
  probe_ = probe;
  tokens_.clear();
  for (const SequenceCache* sequence : batch_) tokens_.push_back(static_cast<int>(sequence->tokens()) + 1);
  views_.clear();
  for (int layer = 0; layer < layout_.layers(); ++layer)
    for (const SequenceCache* sequence : batch_) views_.push_back(sequence->View(layer, 1));
  attention_->Plan(tokens_);
}

void DecodeCache::AppendAndAttend(int layer, const AttentionRows& rows) {
  const size_t batch = batch_.size();
  STRIA_CHECK(rows.rows == static_cast<int>(batch));
  const AttentionShape& shape = layout_.shape();
  const size_t width = size_t(shape.kv_heads) * shape.head_dim;
  for (size_t i = 0; i < batch; ++i) {  // under a microsecond each: no team
    if (!batch_[i]->plan().Holds(layer)) continue;
    AppendToken(target_, shape, rows.k + i * width, rows.v + i * width,
                static_cast<int>(batch_[i]->tokens() % kPageTokens), batch_[i]->key_ring(layer),
                batch_[i]->value_tail(layer), ptrdiff_t{kPageTokens} * shape.head_dim);
  }
  if (probe_ != nullptr) probe_->Capture(layer, rows.q);
  const SequenceKv* views = views_.data() + layer * batch;
  attention_->Run(views, rows.q, rows.out, layer + 1 < layout_.layers() ? views + batch : nullptr);
}

uint64_t DecodeCache::End() {
  full_.clear();
  for (SequenceCache* sequence : batch_) {
    sequence->CountToken();
    if (sequence->tail() == kPageTokens) full_.push_back(sequence);
  }
  if (full_.empty()) return 0;
  const int layers = layout_.layers();
  const int jobs = static_cast<int>(full_.size()) * layers;
  const ptrdiff_t stride = ptrdiff_t{kPageTokens} * layout_.shape().head_dim;
#pragma omp parallel for num_threads(threads_)
  for (int job = 0; job < jobs; ++job) {
    SequenceCache& sequence = *full_[job / layers];
    const int layer = job % layers;
    if (!sequence.plan().Holds(layer)) continue;
    sequence.SealKeyPage(target_, layer, sequence.sealed_pages(), {sequence.key_ring(layer), stride});
    sequence.SealValuePage(target_, layer, sequence.sealed_pages(), {sequence.value_tail(layer), stride});
  }
  uint64_t sealed = 0;
  for (SequenceCache* sequence : full_) {
    sequence->CountPage();
    for (int layer = 0; layer < layers; ++layer) sealed += sequence->plan().Holds(layer) ? 2 : 0;
  }
  return sealed;
}

}  // namespace stria
