// Decode attention on a GPU: what the host plans and what a launch is told. The contract is decode_attention.h's; pages and
// their layout are the CPU's, byte for byte (kernels/format/page_layout.h): a 32-bit word of codes is what a tensor core's
// register holds, and whole slices are copied to shared memory, so every order of bytes is read from memory coalesced.
#pragma once

#include <span>
#include <vector>

#include "kernels/format/page_format.h"

namespace stria {

inline constexpr int kTileHeads = 8;        // query heads of one KV head that a block serves; they share its pages
inline constexpr int kDecodeThreads = 128;  // of a block

// Work of one block: one KV head, up to kTileHeads of its query heads, a run of pages. The tail counts as a page.
struct DecodeUnit {
  int sequence;
  int kv_head;
  int first_head;  // among all query heads
  int heads;
  int first_page;
  int pages;
};

// The units whose partial results make the outputs of one tile of heads.
struct DecodeMerge {
  int first_unit;
  int units;
};

struct DecodePlan {
  std::vector<DecodeUnit> units;
  std::vector<DecodeMerge> merges;
};

// Pure integer work. Splits depend on a sequence's own length only, so its sums are added in the same order whatever runs
// beside it. tokens[i] > 0.
DecodePlan PlanDecode(const AttentionShape& shape, std::span<const int> tokens);

// All pointers are the device's.
struct DecodeParams {
  AttentionShape shape;
  float q_scale = 0;                    // log2(e) / √head_dim
  const SequenceKv* kv = nullptr;       // [sequences]
  const DecodeUnit* units = nullptr;    // [units]
  const DecodeMerge* merges = nullptr;  // [merges]
  const float* q = nullptr;             // [sequences, heads, head_dim]
  float* partials = nullptr;            // [units, kTileHeads, DevicePartialFloats]: Σ p·v, Σ p, max; p = 2^(score − max)
  float* out = nullptr;                 // [sequences, heads, head_dim]
};

constexpr int DevicePartialFloats(int head_dim) { return head_dim + 2; }

}  // namespace stria
