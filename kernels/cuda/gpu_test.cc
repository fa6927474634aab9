// The case tables of all operations on a real GPU. Skipped, and saying so, where there is none.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <map>

#include "kernels/attention/decode_attention_cases.h"
#include "kernels/attention/prefill_attention_cases.h"
#include "kernels/canary/canary_cases.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch.h"
#include "kernels/evict/snapkv_cases.h"
#include "kernels/format/seal_cases.h"

namespace stria {
namespace {

using cuda::DeviceArray;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float Log2Scale(int head_dim) {
  return static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(head_dim)));
}

class NeedsDevice : public testing::Environment {
  void SetUp() override {
    if (cuda::DeviceCount() == 0) GTEST_SKIP() << "no CUDA device, or no driver: nothing of this ran";
    std::printf("device: %s\n", cuda::DeviceName().c_str());
  }
};
const auto* const kNeedsDevice = testing::AddGlobalTestEnvironment(new NeedsDevice);

// One element each, from a block of all heads that may be wider than its tokens.
size_t BlockHalves(const AttentionShape& shape, KvBlock block, int tokens) {
  return (shape.kv_heads - 1) * block.head_stride + size_t{1} * tokens * shape.head_dim;
}

std::vector<float> Decode(const AttentionShape& shape, const std::vector<SequenceKv>& kv, const std::vector<float>& q) {
  std::map<const void*, DeviceArray<char>> pages;
  std::vector<DeviceArray<PageRef>> tables;
  std::vector<DeviceArray<Half>> tails;
  const auto table = [&](const PageRef* refs, int count, auto bytes) {
    std::vector<PageRef> copies(refs, refs + count);
    for (PageRef& page : copies) {
      const auto at = pages.try_emplace(page.data, static_cast<const char*>(page.data), bytes(shape, page.width)).first;
      page.data = at->second.data();
    }
    return tables.emplace_back(copies).data();
  };
  std::vector<SequenceKv> views;
  for (const SequenceKv& s : kv) {
    SequenceKv view = s;
    view.key_pages = table(s.key_pages, s.sealed_pages, &KeyPageBytes);
    view.value_pages = table(s.value_pages, s.sealed_pages, &ValuePageBytes);
    if (s.tail > 0) {
      const size_t halves = size_t{1} * shape.kv_heads * kPageTokens * shape.head_dim;
      view.key_ring = tails.emplace_back(s.key_ring, halves).data();
      view.value_tail = tails.emplace_back(s.value_tail, halves).data();
    }
    views.push_back(view);
  }
  const DecodePlan plan = PlanDecode(shape, TokensOf(kv));
  const DeviceArray<SequenceKv> device_views(views);
  const DeviceArray<DecodeUnit> units(plan.units);
  const DeviceArray<DecodeMerge> merges(plan.merges);
  const DeviceArray<float> queries(q), outputs(std::vector<float>(q.size(), kNan)),
      partials(std::vector<float>(plan.units.size() * kTileHeads * DevicePartialFloats(shape.head_dim), kNan));
  const DecodeParams params = {.shape = shape,
                               .q_scale = Log2Scale(shape.head_dim),
                               .kv = device_views.data(),
                               .units = units.data(),
                               .merges = merges.data(),
                               .q = queries.data(),
                               .partials = partials.data(),
                               .out = outputs.data()};
  EXPECT_STREQ(cuda::LaunchDecodeAttention(params, static_cast<int>(plan.units.size()),
                                           static_cast<int>(plan.merges.size()), nullptr),
               nullptr);
  std::vector<float> out(q.size());
  outputs.Download(out.data());
  return out;
}

void Prefill(const AttentionShape& shape, const PrefillAttentionArgs& args) {
  const size_t elements = size_t{1} * (args.query_end - args.query_begin) * shape.heads * shape.head_dim;
  const DeviceArray<float> q(args.q, elements), out(std::vector<float>(elements, kNan));
  const DeviceArray<Half> keys(args.keys.data, BlockHalves(shape, args.keys, args.query_end)),
      values(args.values.data, BlockHalves(shape, args.values, args.query_end));
  const PrefillParams params = {.shape = shape,
                                .q_scale = Log2Scale(shape.head_dim),
                                .query_begin = args.query_begin,
                                .query_end = args.query_end,
                                .q = q.data(),
                                .keys = {keys.data(), args.keys.head_stride},
                                .values = {values.data(), args.values.head_stride},
                                .out = out.data()};
  EXPECT_STREQ(cuda::LaunchPrefillAttention(params, nullptr), nullptr);
  out.Download(args.out);
}

void Seal(const AttentionShape& shape, Width width, KvBlock tokens, bool keys, void* page) {
  const DeviceArray<Half> block(tokens.data, BlockHalves(shape, tokens, kPageTokens));
  const DeviceArray<char> device_page(std::vector<char>(keys ? KeyPageBytes(shape, width) : ValuePageBytes(shape, width)));
  const SealJob job = {{block.data(), tokens.head_stride}, device_page.data(), width, keys};
  const DeviceArray<SealJob> jobs(&job, 1);
  EXPECT_STREQ(cuda::LaunchSeal(shape, jobs.data(), 1, nullptr), nullptr);
  device_page.Download(static_cast<char*>(page));
}

void Append(const AttentionShape& shape, const float* k, const float* v, int slot, Half* key_block, Half* value_block,
            ptrdiff_t head_stride) {
  const size_t elements = size_t{1} * shape.kv_heads * shape.head_dim, halves = shape.kv_heads * head_stride;
  const DeviceArray<float> device_k(k, elements), device_v(v, elements);
  const DeviceArray<Half> keys(key_block, halves), values(value_block, halves);
  const AppendJob job = {device_k.data(), device_v.data(), keys.data(), values.data(), head_stride, slot};
  const DeviceArray<AppendJob> jobs(&job, 1);
  EXPECT_STREQ(cuda::LaunchAppend(shape, jobs.data(), 1, nullptr), nullptr);
  keys.Download(key_block);
  values.Download(value_block);
}

void Canary(const AttentionShape& shape, const Half* key_ring, int valid, const float* q, float* out) {
  const DeviceArray<Half> ring(key_ring, size_t{1} * shape.kv_heads * kPageTokens * shape.head_dim);
  const DeviceArray<float> queries(q, size_t{1} * shape.heads * shape.head_dim), readings(out, kCanaryWidths);
  const CanaryJob job = {ring.data(), valid, queries.data(), readings.data()};
  const DeviceArray<CanaryJob> jobs(&job, 1);
  EXPECT_STREQ(cuda::LaunchCanary(shape, jobs.data(), 1, nullptr), nullptr);
  readings.Download(out);
}

void AddVotesOnDevice(const AttentionShape& shape, const ObservationArgs& args, float* scores) {
  const int rows = args.query_end - args.query_begin;
  const DeviceArray<float> q(args.q, size_t{1} * rows * shape.heads * shape.head_dim),
      votes(scores, size_t{1} * shape.kv_heads * args.scored);
  const DeviceArray<Half> keys(args.keys.data, BlockHalves(shape, args.keys, args.query_end));
  const DeviceArray<ObservationNormaliser> normalisers(std::vector<ObservationNormaliser>(rows * shape.heads, {kNan, kNan}));
  const ObservationParams params = {.shape = shape,
                                    .q_scale = Log2Scale(shape.head_dim),
                                    .query_begin = args.query_begin,
                                    .query_end = args.query_end,
                                    .q = q.data(),
                                    .keys = {keys.data(), args.keys.head_stride},
                                    .scored = args.scored,
                                    .normalisers = normalisers.data(),
                                    .scores = votes.data()};
  EXPECT_STREQ(cuda::LaunchObservation(params, nullptr), nullptr);
  votes.Download(scores);
}

}  // namespace

// Twins: the same work again.
const std::vector<DecodePath>& DecodePaths() {
  static const std::vector<DecodePath> paths = {{"cuda", &Decode, {&Decode}}};
  return paths;
}
const std::vector<PrefillPath>& PrefillPaths() {
  static const std::vector<PrefillPath> paths = {{"cuda", 3e-6, &Prefill, {&Prefill}}};
  return paths;
}
const std::vector<SealPath>& SealPaths() {
  static const std::vector<SealPath> paths = {{"cuda", &Seal, &Append}};
  return paths;
}
const std::vector<CanaryPath>& CanaryPaths() {
  static const std::vector<CanaryPath> paths = {{"cuda", &Canary}};
  return paths;
}
const std::vector<SnapKvPath>& SnapKvPaths() {
  static const std::vector<SnapKvPath> paths = {{"cuda", &AddVotesOnDevice, {&AddVotesOnDevice}}};
  return paths;
}

}  // namespace stria
