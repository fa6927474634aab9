// Flash attention over one block of query rows (kernels/attention/prefill_kernel.h), in terms of
// kernels/simd.
//
// Both products, S = Q Kᵀ and O += P V, are the same register tile over 32-bit words: a word is one float, or
// two bfloat16 neighbours of the inner index. The right-hand side is packed in panels [inner words][panel
// lanes], so a tile step is one broadcast word of a row times a few vectors of the panel.
#include "kernels/attention/prefill_kernel.h"

#include <cstring>
#include <utility>

namespace stria::STRIA_SIMD {
namespace {

constexpr int kTileRows = kLanes == 16 ? 12 : kLanes == 8 ? 6 : 4;
static_assert(kPrefillRows % kTileRows == 0);

struct F32 {
  using Element = float;
  static constexpr int kPerWord = 1;
  static void StoreRow(float* p, F x) { Store(p, x); }
  static F Step(F sum, I a, I b) { return Fma(AsFloat(a), AsFloat(b), sum); }
};

#ifdef STRIA_SIMD_BF16
struct Bf16 {
  using Element = uint16_t;
  static constexpr int kPerWord = 2;
  static void StoreRow(uint16_t* p, F x) { StoreBf16(p, x); }
  static F Step(F sum, I a, I b) { return DotBf16(sum, a, b); }
};
#endif

// c[r][lane] (+)= Σ_word a[r][word] · b[word][lane] for kTileRows rows and kVectors vectors of lanes.
template <class A, int kVectors>
void Tile(const char* a, size_t a_stride, const char* b, int words, float* c, size_t c_stride,
          bool accumulate) {
  F sum[kTileRows][kVectors];
  for (int r = 0; r < kTileRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = accumulate ? Load(c + r * c_stride + v * kLanes) : Set(0.0f);
  }
  for (int word = 0; word < words; ++word) {
    I right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = LoadBytes(b + (word * kVectors + v) * 4 * kLanes);
    for (int r = 0; r < kTileRows; ++r) {
      const I left = Broadcast4(a + r * a_stride + word * 4);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = A::Step(sum[r][v], left, right[v]);
    }
  }
  for (int r = 0; r < kTileRows; ++r) {
    for (int v = 0; v < kVectors; ++v) Store(c + r * c_stride + v * kLanes, sum[r][v]);
  }
}

template <class A>
class Block {
 public:
  explicit Block(const PrefillBlockArgs& args)
      : args_(args),
        dim_(args.head_dim),
        rows_(args.rows * args.group),
        value_vectors_(dim_ % (2 * kLanes) == 0 ? 2 : 1) {
    float* at = args.scratch;
    const auto take = [&](size_t floats) { return std::exchange(at, at + floats); };
    q_ = take(size_t{1} * kPrefillRows * dim_);
    sums_of_values_ = take(size_t{1} * kPrefillRows * dim_);
    keys_ = take(size_t{1} * kPrefillKeys * dim_);
    values_ = take(size_t{1} * kPrefillKeys * dim_);
    scores_ = take(size_t{1} * kPrefillRows * kPrefillKeys);
    probabilities_ = take(size_t{1} * kPrefillRows * kPrefillKeys);
    maxima_ = take(kPrefillRows);
    sums_ = take(kPrefillRows);
    centre_ = take(dim_);
  }

  void Run() {
    LoadQueries();
    FindCentre();
    const int keys = args_.first_position + args_.rows;
    for (int begin = 0; begin < keys; begin += kPrefillKeys) {
      const int count = keys - begin < kPrefillKeys ? keys - begin : kPrefillKeys;
      PackKeys(begin, count);
      PackValues(begin, count);
      for (int row = 0; row < rows_; row += kTileRows) Step(row, begin, count);
    }
    StoreResult();
  }

 private:
  using Element = typename A::Element;
  static constexpr int kPerWord = A::kPerWord;
  static constexpr int kKeyVectors = 2;
  static constexpr int kPanelKeys = kKeyVectors * kLanes;

  int padded_rows() const { return (rows_ + kTileRows - 1) / kTileRows * kTileRows; }
  size_t row_bytes() const { return size_t{1} * dim_ * sizeof(Element); }

  void LoadQueries() {
    Element* q = reinterpret_cast<Element*>(q_);
    for (int row = 0; row < padded_rows(); ++row) {
      const float* from = args_.q + (row / args_.group) * args_.row_stride + (row % args_.group) * dim_;
      for (int c = 0; c < dim_; c += kLanes) {
        A::StoreRow(q + row * dim_ + c, row < rows_ ? Load(from + c) * Set(args_.q_scale) : Set(0.0f));
        Store(sums_of_values_ + row * dim_ + c, Set(0.0f));
      }
      maxima_[row] = -__builtin_inff();
      sums_[row] = 0.0f;
    }
  }

  // A vector that all keys have in common changes no softmax. Taken off, it leaves bfloat16 its digits for
  // what differs.
  void FindCentre() {
    const int keys = args_.first_position + args_.rows < 64 ? args_.first_position + args_.rows : 64;
    for (int c = 0; c < dim_; c += kLanes) {
      F sum = Set(0.0f);
      if (kPerWord > 1) {
        for (int t = 0; t < keys; ++t) sum = sum + LoadHalf(args_.keys + t * dim_ + c);
      }
      Store(centre_ + c, sum * Set(1.0f / keys));
    }
  }

  // Panels [dim words][kPanelKeys], keys past the end zero.
  void PackKeys(int begin, int count) {
    const int words = dim_ / kPerWord;
    alignas(64) Element row[kPanelKeys][kMaxHeadDim];
    for (int panel = 0; panel < count; panel += kPanelKeys) {
      for (int t = 0; t < kPanelKeys; ++t) {
        const Half* from = args_.keys + size_t{1} * (begin + panel + t) * dim_;
        for (int c = 0; c < dim_; c += kLanes) {
          A::StoreRow(row[t] + c, panel + t < count ? LoadHalf(from + c) - Load(centre_ + c) : Set(0.0f));
        }
      }
      uint32_t* to = reinterpret_cast<uint32_t*>(keys_) + panel * words;
      for (int word = 0; word < words; ++word) {
        for (int t = 0; t < kPanelKeys; ++t) std::memcpy(to++, row[t] + word * kPerWord, 4);
      }
    }
  }

  // Panels [key words][value_vectors · kLanes], keys past the end zero.
  void PackValues(int begin, int count) {
    const int panel_lanes = value_vectors_ * kLanes;
    for (int word = 0; word * kPerWord < RoundUp(count); ++word) {
      for (int c = 0; c < dim_; c += kLanes) {
        const auto row = [&](int t) {
          return t < count ? LoadHalf(args_.values + size_t{1} * (begin + t) * dim_ + c) : Set(0.0f);
        };
        float* to =
            values_ + (c / panel_lanes * (kPrefillKeys / kPerWord) + word) * panel_lanes + c % panel_lanes;
        if constexpr (kPerWord == 1) {
          Store(to, row(word));
        } else {
          alignas(64) uint16_t low[kLanes], high[kLanes];
          A::StoreRow(low, row(2 * word));
          A::StoreRow(high, row(2 * word + 1));
          for (int i = 0; i < kLanes; ++i) {
            const uint32_t pair = low[i] | uint32_t{high[i]} << 16;
            std::memcpy(to + i, &pair, 4);
          }
        }
      }
    }
  }

  static int RoundUp(int keys) { return (keys + kPanelKeys - 1) / kPanelKeys * kPanelKeys; }

  // kTileRows rows against the packed keys [begin, begin + count).
  void Step(int first_row, int begin, int count) {
    const int last_row = first_row + kTileRows <= rows_ ? first_row + kTileRows - 1 : rows_ - 1;
    const int seen = Visible(last_row, begin, count);
    if (seen <= 0) return;
    const int padded = RoundUp(seen);
    const int words = dim_ / kPerWord;
    float* const scores = scores_ + first_row * kPrefillKeys;
    for (int panel = 0; panel < padded; panel += kPanelKeys) {
      Tile<A, kKeyVectors>(reinterpret_cast<const char*>(q_) + first_row * row_bytes(), row_bytes(),
                           reinterpret_cast<const char*>(keys_ + panel * words), words, scores + panel,
                           kPrefillKeys, false);
    }
    Element* const p = reinterpret_cast<Element*>(probabilities_) + first_row * kPrefillKeys;
    for (int r = 0; r < kTileRows; ++r)
      Softmax(first_row + r, begin, count, padded, scores + r * kPrefillKeys, p + r * kPrefillKeys);
    const int panel_lanes = value_vectors_ * kLanes;
    for (int c = 0; c < dim_; c += panel_lanes) {
      const char* a = reinterpret_cast<const char*>(p);
      const char* b = reinterpret_cast<const char*>(values_ + c * (kPrefillKeys / kPerWord));
      float* to = sums_of_values_ + first_row * dim_ + c;
      const size_t p_bytes = kPrefillKeys * sizeof(Element);
      if (value_vectors_ == 2) {
        Tile<A, 2>(a, p_bytes, b, padded / kPerWord, to, dim_, true);
      } else {
        Tile<A, 1>(a, p_bytes, b, padded / kPerWord, to, dim_, true);
      }
    }
  }

  // How many of the keys [begin, begin + count) a row may see.
  int Visible(int row, int begin, int count) const {
    const int visible = args_.first_position + row / args_.group + 1 - begin;
    return visible < count ? visible : count;
  }

  // Turns the scores of one row into probabilities up to a common factor, and brings what is summed so far to
  // the same factor.
  void Softmax(int row, int begin, int count, int padded, float* scores, Element* p) {
    const int seen = row < rows_ ? Visible(row, begin, count) : 0;
    if (seen <= 0) {
      std::memset(p, 0, padded * sizeof(Element));
      return;
    }
    const int vectors_end = (seen + kLanes - 1) / kLanes * kLanes;
    for (int t = seen; t < vectors_end; ++t) scores[t] = -__builtin_inff();
    F largest = Set(maxima_[row]);
    for (int t = 0; t < vectors_end; t += kLanes) largest = Max(largest, Load(scores + t));
    const float max = ReduceMax(largest);
    if (max != maxima_[row]) {
      const F factor = Exp2(Set(maxima_[row] - max));
      float* o = sums_of_values_ + row * dim_;
      for (int c = 0; c < dim_; c += kLanes) Store(o + c, Load(o + c) * factor);
      alignas(64) float first[kLanes];
      Store(first, factor);
      sums_[row] *= first[0];
      maxima_[row] = max;
    }
    F sum = Set(0.0f);
    for (int t = 0; t < vectors_end; t += kLanes) {
      const F x = Exp2(Load(scores + t) - Set(max));
      sum = sum + x;
      A::StoreRow(p + t, x);
    }
    sums_[row] += ReduceAdd(sum);
    std::memset(p + seen, 0, (padded - seen) * sizeof(Element));
  }

  void StoreResult() {
    for (int row = 0; row < rows_; ++row) {
      float* to = args_.out + (row / args_.group) * args_.row_stride + (row % args_.group) * dim_;
      const F inverse = Set(1.0f / sums_[row]);
      for (int c = 0; c < dim_; c += kLanes) Store(to + c, Load(sums_of_values_ + row * dim_ + c) * inverse);
    }
  }

  const PrefillBlockArgs& args_;
  const int dim_;
  const int rows_;           // (query row, head) pairs
  const int value_vectors_;  // vectors of channels in a panel of values
  float* q_;                 // [padded rows, dim] elements
  float* sums_of_values_;    // [padded rows, dim]
  float* keys_;              // panels
  float* values_;            // panels
  float* scores_;            // [padded rows, kPrefillKeys]
  float* probabilities_;     // [padded rows, kPrefillKeys] elements
  float* maxima_;            // [padded rows]
  float* sums_;              // [padded rows]
  float* centre_;            // [dim]
};

}  // namespace

#ifndef __AVX512BF16__
void PrefillBlock(const PrefillBlockArgs& args) { Block<F32>(args).Run(); }
#endif

#ifdef STRIA_SIMD_BF16
void PrefillBlockBf16(const PrefillBlockArgs& args) { Block<Bf16>(args).Run(); }
#endif

}  // namespace stria::STRIA_SIMD
