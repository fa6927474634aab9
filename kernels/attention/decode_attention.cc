// Planning and running apart: Plan cuts the batch into units of work, Run lets threads take them and merges
// what they leave.
#include "kernels/attention/decode_attention.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/attention/decode_kernel.h"
#include "kernels/attention/work_range.h"

namespace stria {
namespace {

// One KV head over `pages` pages of a sequence from `first_page`; the last one of a sequence takes all that
// is left, tail included.
struct Unit {
  int sequence;
  int kv_head;
  int first_page;
  int pages;
  bool last;
  int group_of_units;  // index of (sequence, kv_head)
};

// The units whose partial results make one (sequence, kv_head): every kv_heads-th from `first_unit` on.
struct UnitGroup {
  int first_unit;
  int units;
};

// Pages per unit: enough that beginning and merging one costs little, few enough that many cores find work. Depends on
// the sequence's own length only, so its sums are added in the same order whatever runs beside it.
int PagesPerUnit(int pages) {
  constexpr int kMostUnits = 16;
  const int even = (pages + kMostUnits - 1) / kMostUnits;
  return std::max(1, (even + kChunkPages - 1) / kChunkPages) * kChunkPages;
}

class PagedDecodeAttention final : public DecodeAttention {
 public:
  PagedDecodeAttention(const AttentionShape& shape, Target target, int threads)
      : shape_(shape),
        decode_run_(STRIA_DISPATCH(target, DecodeRun)),
        merge_runs_(STRIA_DISPATCH(target, MergeRuns)),
        threads_(threads),
        ranges_(threads),
        starts_(threads + 1),
        scores_(threads, std::vector<float>(shape.group() * kChunkPages * kPageTokens)) {
    STRIA_CHECK(shape.head_dim % 16 == 0 && shape.head_dim <= kMaxHeadDim);
    STRIA_CHECK(shape.heads % shape.kv_heads == 0 && shape.group() <= kMaxGroup);
    STRIA_CHECK(threads >= 1);
  }

  void Plan(std::span<const int> tokens) override {
    tokens_.assign(tokens.begin(), tokens.end());
    units_.clear();
    groups_.clear();
    size_t total_pages = 0;
    for (size_t sequence = 0; sequence < tokens.size(); ++sequence) {
      STRIA_CHECK(tokens[sequence] > 0);
      const int pages = (tokens[sequence] + kPageTokens - 1) / kPageTokens;
      const int step = PagesPerUnit(pages);
      const int first_unit = static_cast<int>(units_.size()), first_group = static_cast<int>(groups_.size());
      for (int head = 0; head < shape_.kv_heads; ++head)
        groups_.push_back({first_unit + head, (pages + step - 1) / step});
      // Heads inside pages: what one head leaves of a page the next one reads, so memory is read in order.
      for (int page = 0; page < pages; page += step) {
        for (int head = 0; head < shape_.kv_heads; ++head) {
          units_.push_back({static_cast<int>(sequence), head, page, std::min(step, pages - page),
                            page + step >= pages, first_group + head});
        }
      }
      total_pages += size_t{1} * pages * shape_.kv_heads;
    }
    partials_.resize(units_.size() * shape_.group() * PartialFloats(shape_.head_dim));
    if (groups_.size() > open_units_.size()) open_units_ = std::vector<std::atomic<int>>(groups_.size());

    // Thread i starts where a fraction i / threads of the pages is done.
    size_t done = 0;
    int thread = 0;
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      while (thread <= threads_ && done * threads_ >= thread * total_pages)
        starts_[thread++] = static_cast<int>(unit);
      done += units_[unit].pages;
    }
    while (thread <= threads_) starts_[thread++] = static_cast<int>(units_.size());
  }

  void Run(const SequenceKv* kv, const float* q, float* out, const SequenceKv* next) override {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      STRIA_CHECK(kv[i].sealed_pages * kPageTokens + kv[i].tail == tokens_[i]);
    }
    for (int i = 0; i < threads_; ++i) ranges_[i].Reset(starts_[i], starts_[i + 1]);
    for (size_t i = 0; i < groups_.size(); ++i)
      open_units_[i].store(groups_[i].units, std::memory_order_relaxed);

#pragma omp parallel num_threads(threads_)
    {
      const int thread = omp_get_thread_num();
      for (int other = 0; other < threads_; ++other) {
        const int owner = (thread + other) % threads_;
        WorkRange& range = ranges_[owner];
        for (int unit; (unit = other == 0 ? range.TakeFront() : range.TakeBack()) >= 0;) {
          KvRun ahead;
          if (unit + 1 < starts_[owner + 1]) {
            ahead = RunOf(units_[unit + 1], kv);
          } else if (next != nullptr) {
            ahead = RunOf(units_[starts_[owner]], next);
          }
          Attend(unit, kv, q, ahead, scores_[thread].data());
          // Whoever finishes a group merges it: it sees the others' partial results, and the order is fixed.
          const int group = units_[unit].group_of_units;
          if (open_units_[group].fetch_sub(1, std::memory_order_acq_rel) == 1) Merge(groups_[group], out);
        }
      }
    }
  }

 private:
  KvRun RunOf(const Unit& unit, const SequenceKv* kv) const {
    const SequenceKv& sequence = kv[unit.sequence];
    const int first = std::min(unit.first_page, sequence.sealed_pages);
    const ptrdiff_t tail_at = ptrdiff_t{unit.kv_head} * kPageTokens * shape_.head_dim;
    KvRun run;
    run.key_pages = sequence.key_pages + first;
    run.value_pages = sequence.value_pages + first;
    run.pages = std::min(unit.pages, sequence.sealed_pages - first);
    run.kv_head = unit.kv_head;
    if (unit.last && sequence.tail > 0) {
      run.key_tail = sequence.key_ring + tail_at;
      run.value_tail = sequence.value_tail + tail_at;
      run.tail = sequence.tail;
    }
    return run;
  }

  float* PartialOf(int unit) {
    return partials_.data() + size_t{1} * unit * shape_.group() * PartialFloats(shape_.head_dim);
  }

  void Attend(int unit, const SequenceKv* kv, const float* q, const KvRun& ahead, float* scores) {
    const int group = shape_.group(), dim = shape_.head_dim;
    const Unit& u = units_[unit];
    DecodeRunArgs args;
    args.head_dim = dim;
    args.group = group;
    args.q = q + (size_t{1} * u.sequence * shape_.heads + u.kv_head * group) * dim;
    args.q_scale = static_cast<float>(1.4426950408889634 / std::sqrt(static_cast<double>(dim)));
    args.run = RunOf(u, kv);
    args.ahead = ahead;
    args.scores = scores;
    args.partial = PartialOf(unit);
    decode_run_(args);
  }

  void Merge(const UnitGroup& units, float* out) {
    const int group = shape_.group(), dim = shape_.head_dim;
    const Unit& u = units_[units.first_unit];
    MergeRunsArgs args;
    args.head_dim = dim;
    args.group = group;
    args.runs = units.units;
    args.partials = PartialOf(units.first_unit);
    args.stride = size_t{1} * shape_.kv_heads * group * PartialFloats(dim);
    args.out = out + (size_t{1} * u.sequence * shape_.heads + u.kv_head * group) * dim;
    merge_runs_(args);
  }

  const AttentionShape shape_;
  void (*const decode_run_)(const DecodeRunArgs&);
  void (*const merge_runs_)(const MergeRunsArgs&);
  const int threads_;
  std::vector<WorkRange> ranges_;
  std::vector<int> starts_;                 // [threads + 1] first unit of each thread
  std::vector<std::vector<float>> scores_;  // per thread
  std::vector<int> tokens_;                 // per sequence
  std::vector<Unit> units_;
  std::vector<UnitGroup> groups_;
  std::vector<std::atomic<int>> open_units_;  // per group, while Run lasts
  std::vector<float> partials_;
};

}  // namespace

std::unique_ptr<DecodeAttention> DecodeAttention::Create(const AttentionShape& shape, Target target,
                                                         int threads) {
  return std::make_unique<PagedDecodeAttention>(shape, target, threads);
}

}  // namespace stria
