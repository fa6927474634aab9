// The LayerCache of one prompt's chunk. A prompt runs layer by layer, so only one layer's keys and values are
// staged in FP16 at a time; its pages are sealed once, when the layer's last chunk has been seen: of a layer that others
// inherit, when the last of them has. Shared pages are staged too, as they read, and what follows them attends to that.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/aligned_buffer.h"
#include "kernels/attention/prefill_attention.h"
#include "kernels/target.h"
#include "model/layer_cache.h"
#include "worker/cache_layout.h"
#include "worker/page_pool.h"
#include "worker/prefill_plan.h"
#include "worker/prompt_eviction.h"
#include "worker/sequence_cache.h"

namespace stria {

// What a prompt holds beside its pages while it prefills: one layer's keys and values, the votes on which of them stay, and the
// residual stream of the tokens that are computed, which are those behind the shared pages. Charged to the pool.
class PromptStaging {
 public:
  // Null: the pool has no room.
  static std::unique_ptr<PromptStaging> Take(const CacheLayout& layout, int hidden, const PromptShape& shape,
                                             PagePool& pool, bool poison);
  ~PromptStaging() { pool_.Refund(bytes_); }
  PromptStaging(const PromptStaging&) = delete;
  PromptStaging& operator=(const PromptStaging&) = delete;

  const StagedPrompt& prompt() const { return prompt_; }
  uint32_t tokens() const { return prompt_.shape.tokens; }
  uint64_t bytes() const { return bytes_; }
  // Row [hidden] of a token that is computed; the rows of those that follow lie behind it.
  float* residual(uint32_t position) {
    return residual_.data() + size_t{position - prompt_.shape.shared} * hidden_;
  }

 private:
  PromptStaging(PagePool& pool, uint64_t bytes, int hidden) : pool_(pool), bytes_(bytes), hidden_(hidden) {}

  PagePool& pool_;
  const uint64_t bytes_;
  const int hidden_;
  AlignedBuffer<Half> keys_, values_;
  AlignedBuffer<float> votes_, residual_;
  StagedPrompt prompt_;  // of keys_, values_ and votes_
};

class PrefillCache final : public LayerCache {
 public:
  PrefillCache(const CacheLayout& layout, Target target, int threads);

  // The rows of the next AppendAndAttend are tokens [begin, end) of this prompt. A shadow, where there is one, is filled too: the
  // prompt attends in full precision, so its keys and values are the same at all widths.
  void SetChunk(SequenceCache& sequence, SequenceCache* shadow, PromptStaging& staging, uint32_t begin, uint32_t end);
  void AppendAndAttend(int layer, const AttentionRows& rows) override;
  // Pages sealed since the last call.
  uint64_t TakeSealed() { return std::exchange(sealed_, 0); }

 private:
  void StageShared(int layer);
  void Append(const AttentionRows& rows, uint32_t index);
  void SealLayer(SequenceCache& to, int layer, uint32_t tokens);
  void FillRing(SequenceCache& to, int layer, uint32_t tokens);

  const CacheLayout& layout_;
  const Target target_;
  const int threads_;
  std::unique_ptr<PrefillAttention> attention_;
  PromptEviction eviction_;
  uint64_t sealed_ = 0;
  SequenceCache *sequence_ = nullptr, *shadow_ = nullptr;
  PromptStaging* staging_ = nullptr;
  uint32_t begin_ = 0, end_ = 0;
};

}  // namespace stria
