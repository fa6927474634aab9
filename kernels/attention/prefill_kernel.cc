// Flash attention over one block of query rows (kernels/attention/prefill_kernel.h), in terms of
// kernels/simd.
//
// Both products, S = Q Kᵀ and O += P V, are the same register tile over 32-bit words: a word is one float, or
// two bfloat16 neighbours of the inner index. The right-hand side is packed in panels [inner words][panel
// lanes], so a tile step is one broadcast word of a row times a few vectors of the panel. Keys are packed once
// per block; then a strip of rows takes each panel from the second-level cache once and keeps its scores in
// the first.
#include "kernels/attention/prefill_kernel.h"

#include <cstring>
#include <utility>

namespace stria::STRIA_SIMD {
namespace {

constexpr int kTileRows = kLanes == 16 ? 12 : kLanes == 8 ? 6 : 4;
static_assert(kPrefillRows % kStripRows == 0 && kStripRows % kTileRows == 0);

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

// c[r][lane] (+)= Σ_word a[r][word] · b[word][lane] for kTileRows rows and kVectors vectors of lanes; word w of
// row r lies at a[r * row_words + w * step_words].
template <class A, int kVectors, int row_words, int step_words>
void Tile(const float* a, const float* b, int words, float* c, size_t c_stride, bool accumulate) {
  F sum[kTileRows][kVectors];
  for (int r = 0; r < kTileRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = accumulate ? Load(c + r * c_stride + v * kLanes) : Set(0.0f);
  }
  for (int word = 0; word < words; ++word, a += step_words, b += kVectors * kLanes) {
    I right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = LoadBytes(b + v * kLanes);
    for (int r = 0; r < kTileRows; ++r) {
      const I left = Broadcast4(a + r * row_words);
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
        words_(dim_ / kPerWord),
        rows_(args.rows * args.group),
        value_vectors_(dim_ % (2 * kLanes) == 0 ? 2 : 1) {
    float* at = args.scratch;
    const auto take = [&](size_t floats) { return std::exchange(at, at + floats); };
    q_ = take(size_t{1} * kPrefillRows * dim_);
    sums_of_values_ = take(size_t{1} * kPrefillRows * dim_);
    keys_ = take(size_t{1} * kPrefillKeys * dim_);
    values_ = take(size_t{1} * kPrefillKeys * dim_);
    scores_ = take(size_t{1} * kStripRows * kPrefillKeys);
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
      for (int row = 0; row < rows_; row += kStripRows) Step(row, begin, count);
    }
    StoreResult();
  }

 private:
  using Element = typename A::Element;
  static constexpr int kPerWord = A::kPerWord;
  static constexpr int kKeyVectors = 2;
  static constexpr int kPanelKeys = kKeyVectors * kLanes;
  static_assert(kPrefillKeys % kPanelKeys == 0);

  int padded_rows() const { return (rows_ + kStripRows - 1) / kStripRows * kStripRows; }

  // Queries of a tile lie word by word: [tiles][words][kTileRows].
  void LoadQueries() {
    alignas(64) float rows[kTileRows][kMaxHeadDim];  // as words
    for (int row = 0; row < padded_rows(); ++row) {
      const float* from = args_.q + (row / args_.group) * args_.row_stride + (row % args_.group) * dim_;
      Element* const elements = reinterpret_cast<Element*>(rows[row % kTileRows]);
      for (int c = 0; c < dim_; c += kLanes) {
        A::StoreRow(elements + c, row < rows_ ? Load(from + c) * Set(args_.q_scale) : Set(0.0f));
        Store(sums_of_values_ + row * dim_ + c, Set(0.0f));
      }
      maxima_[row] = -__builtin_inff();
      sums_[row] = 0.0f;
      if (row % kTileRows < kTileRows - 1) continue;
      float* to = q_ + (row - row % kTileRows) * words_;
      for (int word = 0; word < words_; ++word) {
        for (int r = 0; r < kTileRows; ++r) std::memcpy(to++, rows[r] + word, sizeof(float));
      }
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

  // Panels [words][kPanelKeys], keys past the end zero.
  void PackKeys(int begin, int count) {
    constexpr int kWordsOfRow = (kMaxHeadDim / kPerWord + kLanes - 1) / kLanes * kLanes;
    alignas(64) float rows[kLanes][kWordsOfRow] = {};  // kLanes keys as words
    for (int first = 0; first < RoundUp(count); first += kLanes) {
      for (int t = 0; t < kLanes; ++t) {
        Element* const to = reinterpret_cast<Element*>(rows[t]);
        const Half* from = args_.keys + size_t{1} * (begin + first + t) * dim_;
        for (int c = 0; c < dim_; c += kLanes)
          A::StoreRow(to + c, first + t < count ? LoadHalf(from + c) - Load(centre_ + c) : Set(0.0f));
      }
      float* const panel = keys_ + first / kPanelKeys * kPanelKeys * words_ + first % kPanelKeys;
      for (int word = 0; word < words_; word += kLanes) {
        F x[kLanes];
        for (int t = 0; t < kLanes; ++t) x[t] = Load(rows[t] + word);
        Transpose(x);
        const int end = words_ - word < kLanes ? words_ - word : kLanes;
        for (int i = 0; i < end; ++i) Store(panel + (word + i) * kPanelKeys, x[i]);
      }
    }
  }

  // Panels [key words][value_vectors · kLanes], keys past the end zero.
  void PackValues(int begin, int count) {
    const int panel_lanes = value_vectors_ * kLanes, words = RoundUp(count) / kPerWord;
    const auto row = [&](int t, int c) {
      return t < count ? LoadHalf(args_.values + size_t{1} * (begin + t) * dim_ + c) : Set(0.0f);
    };
    for (int panel = 0; panel < dim_; panel += panel_lanes) {
      float* to = values_ + panel * (kPrefillKeys / kPerWord);
      for (int word = 0; word < words; ++word) {
        for (int c = panel; c < panel + panel_lanes; c += kLanes, to += kLanes) {
          if constexpr (kPerWord == 1) {
            Store(to, row(word, c));
          } else {
            alignas(64) uint16_t low[kLanes], high[kLanes];
            A::StoreRow(low, row(2 * word, c));
            A::StoreRow(high, row(2 * word + 1, c));
            for (int i = 0; i < kLanes; ++i) {
              const uint32_t pair = low[i] | uint32_t{high[i]} << 16;
              std::memcpy(to + i, &pair, 4);
            }
          }
        }
      }
    }
  }

  static int RoundUp(int keys) { return (keys + kPanelKeys - 1) / kPanelKeys * kPanelKeys; }

  // A strip of rows against the packed keys [begin, begin + count).
  void Step(int first_row, int begin, int count) {
    // Keys that a tile of the strip sees, rounded up to panels: later tiles see as many or more.
    constexpr int kTiles = kStripRows / kTileRows;
    int padded[kTiles];
    for (int i = 0; i < kTiles; ++i) {
      const int end = first_row + (i + 1) * kTileRows;
      const int seen = Visible(end <= rows_ ? end - 1 : rows_ - 1, begin, count);
      padded[i] = seen > 0 && end - kTileRows < rows_ ? RoundUp(seen) : 0;
    }
    float* const scores = scores_;
    for (int panel = 0; panel < count; panel += kPanelKeys) {
      for (int i = 0; i < kTiles; ++i) {
        if (panel >= padded[i]) continue;
        const int row = i * kTileRows;
        Tile<A, kKeyVectors, 1, kTileRows>(q_ + (first_row + row) * words_, keys_ + panel * words_, words_,
                                           scores + row * kPrefillKeys + panel, kPrefillKeys, false);
      }
    }
    for (int r = 0; r < kStripRows; ++r) {
      if (padded[r / kTileRows] > 0)
        Softmax(first_row + r, begin, count, padded[r / kTileRows], scores + r * kPrefillKeys);
    }
    const int panel_lanes = value_vectors_ * kLanes;
    for (int c = 0; c < dim_; c += panel_lanes) {
      const float* const values = values_ + c * (kPrefillKeys / kPerWord);
      for (int i = 0; i < kTiles; ++i) {
        if (padded[i] == 0) continue;
        const int row = i * kTileRows, words = padded[i] / kPerWord;
        const float* const p = scores + row * kPrefillKeys;
        float* const to = sums_of_values_ + (first_row + row) * dim_ + c;
        if (value_vectors_ == 2) {
          Tile<A, 2, kPrefillKeys, 1>(p, values, words, to, dim_, true);
        } else {
          Tile<A, 1, kPrefillKeys, 1>(p, values, words, to, dim_, true);
        }
      }
    }
  }

  // How many of the keys [begin, begin + count) a row may see.
  int Visible(int row, int begin, int count) const {
    const int visible = args_.first_position + row / args_.group + 1 - begin;
    return visible < count ? visible : count;
  }

  // Turns the scores of one row into probabilities up to a common factor, in place (elements never overtake
  // the floats that they come from), and brings what is summed so far to the same factor.
  void Softmax(int row, int begin, int count, int padded, float* scores) {
    Element* const p = reinterpret_cast<Element*>(scores);
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
      float* const values = sums_of_values_ + row * dim_;
      for (int c = 0; c < dim_; c += kLanes) Store(values + c, Load(values + c) * factor);
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
  const int words_;          // of one head's channels
  const int rows_;           // (query row, head) pairs
  const int value_vectors_;  // vectors of channels in a panel of values
  float* q_;                 // [padded rows / kTileRows, words, kTileRows]
  float* sums_of_values_;    // [padded rows, dim]
  float* keys_;              // panels
  float* values_;            // panels
  float* scores_;            // [kStripRows, kPrefillKeys], then as many elements at the start of each row
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
