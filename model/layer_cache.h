// The seam between a transformer and whatever holds its keys and values. The transformer computes queries, keys and values
// of some rows (tokens) of one layer; the cache stores what must be kept and attends. It alone knows which row belongs to
// which sequence, at which width pages lie in memory, and whether the rows are a prompt's or one per running sequence.
#pragma once

namespace stria {

struct AttentionRows {
  int rows = 0;
  const float* q = nullptr;    // [rows, heads, head_dim], after rotary embedding (and QK norm), not yet scaled
  const float* k = nullptr;    // [rows, kv_heads, head_dim], after rotary embedding
  const float* v = nullptr;    // [rows, kv_heads, head_dim]
  float* out = nullptr;        // [rows, heads, head_dim]
};

class LayerCache {
 public:
  virtual ~LayerCache() = default;

  // Appends k and v of each row to its sequence, then writes softmax(q Kᵀ / √head_dim) V over everything that the row may
  // see (itself included) to `out`. Called once per layer, layers in ascending order, from the engine's thread only;
  // it may open OpenMP parallel regions of its own.
  virtual void AppendAndAttend(int layer, const AttentionRows& rows) = 0;
};

}  // namespace stria
