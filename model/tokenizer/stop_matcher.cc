#include "model/tokenizer/stop_matcher.h"

#include <utility>

namespace stria {

absl::StatusOr<StopMatcher> StopMatcher::Create(const std::vector<std::string>& stops) {
  StopMatcher m;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) return absl::InvalidArgumentError("stop: an empty stop string");
    int node = 0;
    for (const char c : stops[i]) {
      const auto [edge, added] = m.nodes_[node].next.emplace(c, static_cast<int>(m.nodes_.size()));
      const int child = edge->second, depth = m.nodes_[node].depth + 1;
      if (added) {
        m.nodes_.emplace_back();
        m.nodes_.back().depth = depth;
      }
      node = child;
    }
    if (m.nodes_[node].stop < 0) {
      m.nodes_[node].stop = static_cast<int>(i);
      m.nodes_[node].stop_length = static_cast<int>(stops[i].size());
    }
  }

  // Breadth first, so that a node's failure link is there before its children ask for it.
  std::vector<int> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int parent = order[i];
    for (const auto& [c, child] : m.nodes_[parent].next) {
      order.push_back(child);
      Node& node = m.nodes_[child];
      node.fail = parent == 0 ? 0 : m.Step(m.nodes_[parent].fail, c);
      const Node& fail = m.nodes_[node.fail];
      if (node.stop < 0 && fail.stop >= 0) {
        node.stop = fail.stop;
        node.stop_length = fail.stop_length;
      }
    }
  }
  return m;
}

int StopMatcher::Step(int node, char c) const {
  for (;; node = nodes_[node].fail) {
    if (const auto edge = nodes_[node].next.find(c); edge != nodes_[node].next.end()) return edge->second;
    if (node == 0) return 0;
  }
}

std::string StopMatcher::Add(std::string_view piece) {
  if (stopped()) return "";
  std::string text = std::exchange(held_, "");
  for (const char c : piece) {
    text += c;
    node_ = Step(node_, c);
    if (const Node& node = nodes_[node_]; node.stop >= 0) {
      matched_ = node.stop;
      text.resize(text.size() - node.stop_length);
      return text;
    }
  }
  const size_t shown = text.size() - nodes_[node_].depth;
  held_ = text.substr(shown);
  text.resize(shown);
  return text;
}

std::string StopMatcher::Flush() {
  node_ = 0;
  return std::exchange(held_, "");
}

}  // namespace stria
