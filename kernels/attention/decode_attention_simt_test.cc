// The case table on the device code, run by the host harness in every order of lanes. Pages lie in memory whose ends fault.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "kernels/attention/decode_attention.cuh"
#include "kernels/attention/decode_attention_cases.h"
#include "kernels/simt/guarded_buffer.h"
#include "kernels/simt/simt.h"

namespace stria {
namespace {

using simt::GuardedBuffer;
using simt::Order;

// Device memory: what the host's cache holds, each page in a mapping of its own.
class DeviceCopy {
 public:
  DeviceCopy(const AttentionShape& shape, const std::vector<SequenceKv>& kv) : shape_(shape) {
    for (const SequenceKv& s : kv) {
      SequenceKv copy = s;
      copy.key_pages = Copy(s.key_pages, s.sealed_pages, &KeyPageBytes);
      copy.value_pages = Copy(s.value_pages, s.sealed_pages, &ValuePageBytes);
      const size_t halves = size_t{1} * shape.kv_heads * kPageTokens * shape.head_dim;
      if (s.tail > 0) copy.key_ring = Bytes<Half>(s.key_ring, halves), copy.value_tail = Bytes<Half>(s.value_tail, halves);
      views_.push_back(copy);
    }
  }
  const SequenceKv* views() const { return views_.data(); }

 private:
  const PageRef* Copy(const PageRef* pages, int count, size_t (*bytes)(const AttentionShape&, Width)) {
    std::vector<PageRef> refs(pages, pages + count);
    for (PageRef& page : refs) {
      const void*& copy = copies_[page.data];
      if (copy == nullptr) copy = Bytes<char>(page.data, bytes(shape_, page.width));
      page.data = copy;
    }
    refs_.push_back(std::move(refs));
    return refs_.back().data();
  }

  template <class T>
  const T* Bytes(const void* from, size_t count) {
    const char* bytes = static_cast<const char*>(from);
    memory_.push_back(std::make_unique<GuardedBuffer<char>>(std::vector<char>(bytes, bytes + count * sizeof(T))));
    return reinterpret_cast<const T*>(memory_.back()->data());
  }

  const AttentionShape shape_;
  std::vector<std::unique_ptr<GuardedBuffer<char>>> memory_;
  std::map<const void*, const void*> copies_;
  std::vector<std::vector<PageRef>> refs_;
  std::vector<SequenceKv> views_;
};

template <int kMaxDim, class Products>
void RunKernels(const DecodeParams& params, const DecodePlan& plan, Order order) {
  EXPECT_EQ(simt::Run<device::DecodeShared<kMaxDim>>(
                {.grid = {.x = static_cast<int>(plan.units.size())}, .threads = kDecodeThreads, .order = order},
                [&](auto& shared) { device::DecodeAttentionKernel<kMaxDim, Products>(params, shared); }),
            "");
  struct Nothing {};
  EXPECT_EQ(simt::Run<Nothing>({.grid = {.x = static_cast<int>(plan.merges.size())}, .threads = 32, .order = order},
                               [&](Nothing&) { device::DecodeMergeKernel(params); }),
            "");
}

template <class Products>
DecodeFunction InOrder(Order order) {
  return [=](const AttentionShape& shape, const std::vector<SequenceKv>& kv, const std::vector<float>& q) {
    const DeviceCopy copy(shape, kv);
    const DecodePlan plan = PlanDecode(shape, TokensOf(kv));
    const GuardedBuffer<DecodeUnit> units(plan.units);
    const GuardedBuffer<DecodeMerge> merges(plan.merges);
    const GuardedBuffer<float> queries(q);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    GuardedBuffer<float> partials(std::vector<float>(plan.units.size() * kTileHeads * DevicePartialFloats(shape.head_dim), nan));
    GuardedBuffer<float> out(std::vector<float>(q.size(), nan));
    const DecodeParams params = {.shape = shape,
                                 .q_scale = static_cast<float>(1.4426950408889634 / std::sqrt(double(shape.head_dim))),
                                 .kv = copy.views(),
                                 .units = units.data(),
                                 .merges = merges.data(),
                                 .q = queries.data(),
                                 .partials = partials.data(),
                                 .out = out.data()};
    if (shape.head_dim <= 64) {
      RunKernels<64, Products>(params, plan, order);
    } else if (shape.head_dim <= 128) {
      RunKernels<128, Products>(params, plan, order);
    } else {
      RunKernels<256, Products>(params, plan, order);
    }
    return std::vector<float>(out.data(), out.data() + out.size());
  };
}

}  // namespace

const std::vector<DecodePath>& DecodePaths() {
  using device::ScalarTwin;
  using device::TensorCores;
  static const std::vector<DecodePath> paths = {
      {"forward", InOrder<TensorCores>(Order::kForward), {InOrder<ScalarTwin>(Order::kForward)}},
      {"reverse", InOrder<TensorCores>(Order::kReverse), {InOrder<TensorCores>(Order::kForward)}},
      {"shuffled", InOrder<TensorCores>(Order::kShuffled), {InOrder<TensorCores>(Order::kForward)}},
  };
  return paths;
}

TEST(DecodePlanTest, CoversEveryPageOfEveryHeadOnce) {
  const AttentionShape shape = {36, 3, 64};  // 12 heads a group: two tiles
  const DecodePlan plan = PlanDecode(shape, std::vector<int>{1, 64, 65, 8192, 131072});
  size_t unit = 0;
  for (const DecodeMerge& merge : plan.merges) {
    EXPECT_EQ(static_cast<size_t>(merge.first_unit), unit);
    const DecodeUnit& first = plan.units[unit];
    int pages = 0;
    for (int i = 0; i < merge.units; ++i, ++unit) {
      EXPECT_EQ(plan.units[unit].first_page, pages);
      EXPECT_EQ(plan.units[unit].first_head, first.first_head);
      pages += plan.units[unit].pages;
    }
    EXPECT_EQ(pages, std::vector({1, 1, 2, 128, 2048})[first.sequence]);
    EXPECT_EQ(first.heads, first.first_head % 12 == 0 ? 8 : 4);
  }
  EXPECT_EQ(unit, plan.units.size());
  EXPECT_EQ(plan.merges.size(), 5u * 3 * 2);
}

// A sequence's splits are its own: the same beside any neighbour.
TEST(DecodePlanTest, SplitsDependOnTheOwnLengthOnly) {
  const AttentionShape shape = {2, 1, 64};
  const DecodePlan alone = PlanDecode(shape, std::vector<int>{40000}), among = PlanDecode(shape, std::vector<int>{9, 40000});
  ASSERT_EQ(among.units.size(), alone.units.size() + 1);
  for (size_t i = 0; i < alone.units.size(); ++i) EXPECT_EQ(among.units[i + 1].first_page, alone.units[i].first_page);
}

}  // namespace stria
