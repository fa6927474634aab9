// The LayerCache of one prompt's chunk. A prompt runs layer by layer, so only one layer's keys and values are
// staged in FP16 at a time; its pages are sealed once, when the layer's last chunk has been seen.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/attention/prefill_attention.h"
#include "kernels/target.h"
#include "model/layer_cache.h"
#include "worker/cache_layout.h"
#include "worker/page_pool.h"
#include "worker/sequence_cache.h"

namespace stria {

// What a prompt holds beside its pages while it prefills: one layer's keys and values, and its residual
// stream. Charged to the pool.
class PromptStaging {
 public:
  // Null: the pool has no room.
  static std::unique_ptr<PromptStaging> Take(const CacheLayout& layout, int hidden, uint32_t tokens,
                                             PagePool& pool, bool poison);
  ~PromptStaging() { pool_.Refund(bytes_); }
  PromptStaging(const PromptStaging&) = delete;
  PromptStaging& operator=(const PromptStaging&) = delete;

  uint32_t tokens() const { return tokens_; }
  uint64_t bytes() const { return bytes_; }
  Half* keys() { return keys_.get(); }           // [kv_heads, tokens, head_dim]
  Half* values() { return values_.get(); }       // likewise
  float* residual() { return residual_.get(); }  // [tokens, hidden]

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  PromptStaging(PagePool& pool, uint64_t bytes, uint32_t tokens)
      : pool_(pool), bytes_(bytes), tokens_(tokens) {}

  PagePool& pool_;
  const uint64_t bytes_;
  const uint32_t tokens_;
  std::unique_ptr<Half[], Free> keys_, values_;
  std::unique_ptr<float[], Free> residual_;
};

class PrefillCache final : public LayerCache {
 public:
  PrefillCache(const CacheLayout& layout, Target target, int threads);

  // The rows of the next AppendAndAttend are tokens [begin, end) of this prompt.
  void SetChunk(SequenceCache& sequence, PromptStaging& staging, uint32_t begin, uint32_t end);
  void AppendAndAttend(int layer, const AttentionRows& rows) override;

 private:
  void Append(const AttentionRows& rows);
  void SealLayer(int layer);
  void FillRing(int layer);

  const CacheLayout& layout_;
  const Target target_;
  const int threads_;
  std::unique_ptr<PrefillAttention> attention_;
  SequenceCache* sequence_ = nullptr;
  PromptStaging* staging_ = nullptr;
  uint32_t begin_ = 0, end_ = 0;
};

}  // namespace stria
