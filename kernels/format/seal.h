// Sealing: 64 FP16 tokens become a page at a width, once and for life.
// Formula: KIVI (Liu et al., 2024): keys asymmetric per channel over the 64 tokens, values per token and head;
// we store scale and middle = (min + max) / 2 and centre the codes, so that rounding has no bias.
#pragma once

#include "kernels/format/page_format.h"
#include "kernels/target.h"

namespace stria {

// Writes all KeyPageBytes / ValuePageBytes of `page` (64-byte aligned). `tokens` holds exactly 64 tokens.
// Every target writes the same bytes. Infinite or NaN inputs give a page whose reads are NaN, never a trap.
void SealKeys(Target target, const AttentionShape& shape, Width width, KvBlock tokens, void* page);
void SealValues(Target target, const AttentionShape& shape, Width width, KvBlock tokens, void* page);

// The inverse, for tests and the reference kernels: out [kv_heads, 64, head_dim].
void UnsealKeys(const AttentionShape& shape, PageRef page, float* out);
void UnsealValues(const AttentionShape& shape, PageRef page, float* out);

// The same numbers rounded to FP16, as 64 tokens of a block: how a prompt reads the pages that it shares. Every target
// writes the same bytes.
void StageKeys(Target target, const AttentionShape& shape, PageRef page, Half* block, ptrdiff_t head_stride);
void StageValues(Target target, const AttentionShape& shape, PageRef page, Half* block, ptrdiff_t head_stride);

// Rounds one token's keys and values [kv_heads, head_dim] to FP16 and writes them to slot `slot` of the blocks.
void AppendToken(Target target, const AttentionShape& shape, const float* k, const float* v, int slot, Half* key_block,
                 Half* value_block, ptrdiff_t head_stride);

}  // namespace stria
