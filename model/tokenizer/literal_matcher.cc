#include "model/tokenizer/literal_matcher.h"

namespace stria {

void LiteralMatcher::Add(std::string_view literal, int32_t id) {
  int32_t node = 0;
  for (const char c : literal) {
    const auto [edge, added] = nodes_[node].next.emplace(c, static_cast<int32_t>(nodes_.size()));
    node = edge->second;
    if (added) nodes_.emplace_back();
  }
  nodes_[node].id = id;
}

LiteralMatcher::Match LiteralMatcher::Find(std::string_view text, size_t from) const {
  if (nodes_[0].next.empty()) return {};
  for (size_t begin = from; begin < text.size(); ++begin) {
    Match match;
    int32_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto edge = nodes_[node].next.find(text[at]);
      if (edge == nodes_[node].next.end()) break;
      node = edge->second;
      if (nodes_[node].id >= 0) match = {begin, at + 1, nodes_[node].id};
    }
    if (match.id >= 0) return match;
  }
  return {};
}

}  // namespace stria
