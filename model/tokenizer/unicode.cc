#include "model/tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>
#include <vector>

#include "model/tokenizer/utf8.h"

namespace stria {
namespace {

constexpr CharClass kLetter = CharClass::kLetter, kNumber = CharClass::kNumber, kSpace = CharClass::kSpace,
                    kDigitOnly = CharClass::kDigitOnly;

struct ClassRange {
  uint32_t first, last;
  CharClass value;
};
struct CombiningRange {
  uint32_t first, last;
  uint8_t value;
};
struct Decomposition {
  uint32_t composed, first, second;  // second 0: a singleton
};

#include "model/tokenizer/unicode_tables.inc"

// The value of the range that holds `code_point`, or a zero value.
template <typename Range, size_t n>
constexpr auto Lookup(const Range (&ranges)[n], uint32_t code_point) {
  const Range* r = std::upper_bound(std::begin(ranges), std::end(ranges), code_point,
                                    [](uint32_t c, const Range& range) { return c < range.first; });
  using Value = decltype(r->value);
  return r != std::begin(ranges) && code_point <= r[-1].last ? r[-1].value : Value{};
}

constexpr auto kLowClasses = [] {
  std::array<CharClass, 0x300> table{};
  for (uint32_t c = 0; c < table.size(); ++c) table[c] = Lookup(kClassRanges, c);
  return table;
}();

// Hangul syllables are composed by arithmetic (The Unicode Standard, section 3.12).
constexpr uint32_t kS = 0xAC00, kL = 0x1100, kV = 0x1161, kT = 0x11A7, kVs = 21, kTs = 28, kLs = 19;

void Decompose(uint32_t c, std::vector<uint32_t>* out) {
  if (c - kS < kLs * kVs * kTs) {
    const uint32_t s = c - kS;
    out->push_back(kL + s / (kVs * kTs));
    out->push_back(kV + s / kTs % kVs);
    if (s % kTs != 0) out->push_back(kT + s % kTs);
    return;
  }
  const Decomposition* d = std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), c,
                                            [](const Decomposition& a, uint32_t b) { return a.composed < b; });
  if (d == std::end(kDecompositions) || d->composed != c) return out->push_back(c);
  Decompose(d->first, out);
  if (d->second != 0) Decompose(d->second, out);
}

// The primary composite of two characters, or 0.
uint32_t Compose(uint32_t a, uint32_t b) {
  if (a - kL < kLs && b - kV < kVs) return kS + ((a - kL) * kVs + (b - kV)) * kTs;
  if (a - kS < kLs * kVs * kTs && (a - kS) % kTs == 0 && b - kT - 1 < kTs - 1) return a + (b - kT);
  const auto pair = std::make_pair(a, b);
  const auto key = [](unsigned short i) { return std::make_pair(kDecompositions[i].first, kDecompositions[i].second); };
  const auto* i = std::lower_bound(std::begin(kCompositions), std::end(kCompositions), pair,
                                   [&](unsigned short i, const auto& p) { return key(i) < p; });
  return i != std::end(kCompositions) && key(*i) == pair ? kDecompositions[*i].composed : 0;
}

// Normalises a run of whole characters: decompose, sort marks, compose.
void NormalizeRun(std::vector<uint32_t>* characters, std::string* out) {
  if (characters->empty()) return;
  struct Mark {
    uint32_t c;
    uint8_t combining;
  };
  std::vector<uint32_t> decomposed;
  for (uint32_t c : *characters) Decompose(c, &decomposed);
  characters->clear();

  std::vector<Mark> marks;
  for (uint32_t c : decomposed) marks.push_back({c, Lookup(kCombiningRanges, c)});
  for (auto i = marks.begin(); i != marks.end();) {
    if (i->combining == 0) {
      ++i;
      continue;
    }
    const auto end = std::find_if(i, marks.end(), [](const Mark& m) { return m.combining == 0; });
    std::stable_sort(i, end, [](const Mark& a, const Mark& b) { return a.combining < b.combining; });
    i = end;
  }

  std::vector<Mark> composed;
  size_t starter = marks.size();  // index in composed; marks.size(): none yet
  for (const Mark& m : marks) {
    // A mark is blocked from its starter by one of its own or a higher class, or by another starter.
    const bool has_starter = starter < composed.size();
    const bool adjacent = has_starter && starter + 1 == composed.size();
    const bool blocked = !adjacent && (m.combining == 0 || composed.empty() || composed.back().combining >= m.combining);
    if (has_starter && !blocked) {
      if (const uint32_t c = Compose(composed[starter].c, m.c)) {
        composed[starter].c = c;
        continue;
      }
    }
    if (m.combining == 0) starter = composed.size();
    composed.push_back(m);
  }
  for (const Mark& m : composed) AppendUtf8(m.c, out);
}

}  // namespace

CharClass ClassOf(uint32_t code_point) {
  return code_point < kLowClasses.size() ? kLowClasses[code_point] : Lookup(kClassRanges, code_point);
}

std::string Nfc(std::string_view text) {
  // Below U+0300 nothing decomposes for good and nothing combines with what stands before it, so that each such
  // character begins a run of its own, and stays as it is if another follows.
  const auto begins_inert = [&](size_t at) { return at == text.size() || static_cast<uint8_t>(text[at]) < 0xCC; };
  std::string out;
  out.reserve(text.size());
  std::vector<uint32_t> run;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    const bool invalid = c.code_point == kInvalidCodePoint, inert = c.code_point < 0x300;
    if (invalid || inert) NormalizeRun(&run, &out);
    if (invalid || (inert && begins_inert(at + c.length))) {
      out += text.substr(at, c.length);
    } else {
      run.push_back(c.code_point);
    }
    at += c.length;
  }
  NormalizeRun(&run, &out);
  return out;
}

}  // namespace stria
