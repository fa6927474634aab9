// Sequences that wait for room: bounded, first come first served; those that had already been running go first.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

namespace stria {

class WaitQueue {
 public:
  explicit WaitQueue(size_t limit) : limit_(limit) {}

  // Room for `count` newcomers. Sequences that come back always find room: they were counted when they came first.
  bool HasRoom(size_t count) const { return entries_.size() + count <= limit_; }

  // Ids grow with arrival, so equals wait in order of arrival.
  void Add(uint64_t id, bool came_back) { entries_.insert({.fresh = !came_back, .id = id}); }
  void Remove(uint64_t id) {
    entries_.erase({.fresh = true, .id = id});
    entries_.erase({.fresh = false, .id = id});
  }

  std::optional<uint64_t> Head() const {
    return entries_.empty() ? std::nullopt : std::optional<uint64_t>(entries_.begin()->id);
  }
  size_t size() const { return entries_.size(); }
  size_t limit() const { return limit_; }

 private:
  struct Entry {
    bool fresh;
    uint64_t id;
    friend auto operator<=>(const Entry&, const Entry&) = default;
  };
  size_t limit_;
  std::set<Entry> entries_;
};

}  // namespace stria
