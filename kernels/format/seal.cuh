// Sealing and appending, device code.
#pragma once

#include "kernels/device/device.cuh"
#include "kernels/format/quantizer.cuh"
#include "kernels/format/seal_device.h"

namespace stria::device {

struct SealShared {
  static constexpr int kStride = kMaxHeadDim + 2;
  Half x[kPageTokens][kStride];
  float middle[kMaxHeadDim], inverse[kMaxHeadDim];  // of each range: a channel of keys, a token of values
};

// Block (job, KV head), kSealThreads.
STRIA_DEVICE void SealKernel(const AttentionShape& shape, const SealJob* jobs, SealShared& shared) {
  const SealJob job = jobs[BlockX()];
  const int dim = shape.head_dim, head = BlockY(), elements = kPageTokens * dim;
  const Half* tokens = job.tokens.data + head * job.tokens.head_stride;
  uint8_t* slice = static_cast<uint8_t*>(job.page) +
                   head * (job.keys ? KeySliceBytes(dim, job.width) : ValueSliceBytes(dim, job.width));
  if (job.width == Width::kFp16) {
    for (int i = Thread() * 8; i < elements; i += kSealThreads * 8)
      Store(slice + i * sizeof(Half), Load<Words4>(tokens + i));
    return;
  }
  for (int i = Thread(); i < elements; i += kSealThreads) shared.x[i / dim][i % dim] = tokens[i];
  SyncBlock();

  const int bits = Bits(job.width), ranges = job.keys ? dim : kPageTokens, length = job.keys ? kPageTokens : dim;
  Half* scales = reinterpret_cast<Half*>(slice);
  for (int i = Thread(); i < ranges; i += kSealThreads) {
    Range range;
    for (int k = 0; k < length; ++k) range.Add(FloatOf(job.keys ? shared.x[k][i] : shared.x[i][k]));
    const RangeQuantizer quantizer(range, bits);
    scales[i] = quantizer.scale;
    scales[ranges + i] = quantizer.middle;
    shared.middle[i] = quantizer.middle_value;
    shared.inverse[i] = quantizer.inverse;
  }
  SyncBlock();

  // Whole words: lane `lane`, inner groups of four in row `row`, as CodeMatrix says.
  const CodeMatrix matrix = job.keys ? KeyCodes(dim, job.width) : ValueCodes(dim, job.width);
  uint8_t* codes = slice + 2 * sizeof(Half) * ranges;
  const int words = static_cast<int>(matrix.bytes() / 4), rows = matrix.rows();
  for (int i = Thread(); i < words; i += kSealThreads) {
    const int lane = i / (rows * kRowLanes) * kRowLanes + i % kRowLanes, row = i / kRowLanes % rows;
    uint32_t word = 0;
    for (int place = 0; place < matrix.places(); ++place) {
      for (int k = 0; k < kGroupInner; ++k) {
        const int inner = (row * matrix.places() + place) * kGroupInner + k;
        const float x = FloatOf(job.keys ? shared.x[lane][inner] : shared.x[inner][lane]);
        const int code = CodeOf(x, shared.middle[inner], shared.inverse[inner], bits);
        word |= static_cast<uint32_t>(code) << (k * 8 + place * bits);
      }
    }
    Store(codes + i * 4, word);
  }
}

// Block per job, any number of threads.
STRIA_DEVICE void AppendKernel(const AttentionShape& shape, const AppendJob* jobs) {
  const AppendJob job = jobs[BlockX()];
  for (int i = Thread(); i < shape.kv_heads * shape.head_dim; i += Threads()) {
    const ptrdiff_t to = i / shape.head_dim * job.head_stride + job.slot * shape.head_dim + i % shape.head_dim;
    job.key_block[to] = HalfOf(job.k[i]);
    job.value_block[to] = HalfOf(job.v[i]);
  }
}

}  // namespace stria::device
