#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/tokenizer/utf8.h"

namespace stria {
namespace {

// GPT-2 shows the 188 printable bytes of Latin-1 as themselves and the others, in order, as U+0100 and up.
bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr int kHiddenBytes = 256 - 188;

std::array<uint8_t, kHiddenBytes> HiddenBytes() {
  std::array<uint8_t, kHiddenBytes> hidden{};
  int n = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (!IsPrintable(byte)) hidden[n++] = static_cast<uint8_t>(byte);
  }
  return hidden;
}

// Up to so many bytes a plain search for the best pair beats a heap.
constexpr size_t kShortWord = 48;

constexpr int32_t kNoMerge = std::numeric_limits<int32_t>::max();

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

absl::StatusOr<std::string> BytesFromPrintable(std::string_view printable) {
  static const std::array<uint8_t, kHiddenBytes> hidden = HiddenBytes();
  std::string bytes;
  for (size_t at = 0; at < printable.size();) {
    const Utf8Char c = DecodeUtf8(printable, at);
    if (c.code_point < 0x100 && IsPrintable(static_cast<int>(c.code_point))) {
      bytes.push_back(static_cast<char>(c.code_point));
    } else if (c.code_point - 0x100 < hidden.size()) {
      bytes.push_back(static_cast<char>(hidden[c.code_point - 0x100]));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", ReplaceInvalidUtf8(printable), "\" is not in GPT-2's byte alphabet"));
    }
    at += c.length;
  }
  return bytes;
}

absl::StatusOr<Bpe> Bpe::Create(const std::vector<std::string>& tokens, const std::vector<std::string>& merges,
                                bool whole_words) {
  Bpe bpe;
  bpe.whole_words_ = whole_words;
  bpe.byte_ids_.fill(-1);
  bpe.ids_.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string& token = tokens[id];
    if (token.empty()) continue;
    if (!bpe.ids_.emplace(token, static_cast<int32_t>(id)).second) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.tokens: token ", id, " (\"",
                                                     ReplaceInvalidUtf8(token), "\") is there twice"));
    }
    if (token.size() == 1) bpe.byte_ids_[static_cast<uint8_t>(token[0])] = static_cast<int32_t>(id);
  }

  bpe.merges_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const auto error = [&](const char* what) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.merges: merge ", rank, " (\"",
                                                     ReplaceInvalidUtf8(merge), "\") ", what));
    };
    const size_t blank = merge.find(' ');
    if (blank == 0 || blank >= merge.size() - 1) return error("is not two tokens");
    const absl::StatusOr<std::string> left = BytesFromPrintable(merge.substr(0, blank));
    const absl::StatusOr<std::string> right = BytesFromPrintable(merge.substr(blank + 1));
    if (!left.ok() || !right.ok()) return error("is not in GPT-2's byte alphabet");
    const auto left_id = bpe.ids_.find(*left), right_id = bpe.ids_.find(*right),
               merged_id = bpe.ids_.find(*left + *right);
    if (left_id == bpe.ids_.end() || right_id == bpe.ids_.end() || merged_id == bpe.ids_.end()) {
      return error("names or makes a token that is not in the vocabulary");
    }
    bpe.merges_.insert_or_assign(PairKey(left_id->second, right_id->second),
                                 Merge{static_cast<int32_t>(rank), merged_id->second});
  }
  if (!whole_words) bpe.ids_ = {};
  return bpe;
}

const Bpe::Merge* Bpe::FindMerge(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::Encode(std::string_view word, std::vector<int32_t>* ids) const {
  if (whole_words_) {
    if (const auto found = ids_.find(absl::string_view(word.data(), word.size())); found != ids_.end()) return ids->push_back(found->second);
  }
  const size_t begin = ids->size();
  for (const char byte : word) {
    if (const int32_t id = byte_ids_[static_cast<uint8_t>(byte)]; id >= 0) ids->push_back(id);
  }
  const size_t n = ids->size() - begin;
  if (n < 2) return;
  n <= kShortWord ? EncodeShort(ids, begin) : EncodeLong(ids, begin);
}

// Merges ids[begin..] in place.
void Bpe::EncodeShort(std::vector<int32_t>* ids, size_t begin) const {
  int32_t* const id = ids->data() + begin;
  size_t n = ids->size() - begin;
  Merge merge[kShortWord];  // merge[i] joins id[i] and id[i + 1]
  const auto look_up = [&](size_t i) {
    const Merge* found = FindMerge(id[i], id[i + 1]);
    merge[i] = found != nullptr ? *found : Merge{kNoMerge, 0};
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    const Merge* const best =
        std::min_element(merge, merge + n - 1, [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->rank == kNoMerge) break;
    const size_t i = static_cast<size_t>(best - merge);
    id[i] = best->id;
    std::copy(id + i + 2, id + n, id + i + 1);
    std::copy(merge + i + 1, merge + n - 1, merge + i);
    --n;
    if (i > 0) look_up(i - 1);
    if (i + 1 < n) look_up(i);
  }
  ids->resize(begin + n);
}

// The same by a heap of candidate merges over a linked list of what is left. A candidate is out of date when one of its
// symbols has been merged since.
void Bpe::EncodeLong(std::vector<int32_t>* ids, size_t begin) const {
  struct Symbol {
    int32_t id;  // -1: merged into its left neighbour
    int prev, next;
  };
  struct Candidate {
    int32_t rank;
    int at;
    int32_t left, right, id;
    bool operator>(const Candidate& other) const {
      return std::make_pair(rank, at) > std::make_pair(other.rank, other.at);
    }
  };
  const int n = static_cast<int>(ids->size() - begin);
  std::vector<Symbol> symbols(n);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
  const auto propose = [&](int at) {
    if (at < 0 || symbols[at].next == n) return;
    const int32_t left = symbols[at].id, right = symbols[symbols[at].next].id;
    if (const Merge* m = FindMerge(left, right)) heap.push({m->rank, at, left, right, m->id});
  };
  for (int i = 0; i < n; ++i) symbols[i] = {(*ids)[begin + i], i - 1, i + 1};
  for (int i = 0; i < n; ++i) propose(i);

  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    Symbol& left = symbols[c.at];
    if (left.id != c.left || left.next == n || symbols[left.next].id != c.right) continue;
    Symbol& right = symbols[left.next];
    left.id = c.id;
    left.next = right.next;
    right.id = -1;
    if (left.next < n) symbols[left.next].prev = c.at;
    propose(left.prev);
    propose(c.at);
  }

  ids->resize(begin);
  for (int i = 0; i < n; i = symbols[i].next) ids->push_back(symbols[i].id);
}

}  // namespace stria
