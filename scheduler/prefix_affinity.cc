#include "scheduler/prefix_affinity.h"

namespace stria {

void PrefixAffinity::Remember(const std::string& worker, std::span<const PrefixKey> chain) {
  auto& known = by_worker_[worker];
  for (size_t i = chain.size(); i-- > 0;) {  // the first page last, so that it is forgotten last
    const auto [it, is_new] = known.try_emplace(chain[i]);
    if (is_new) {
      pages_.push_front({worker, chain[i]});
      it->second = pages_.begin();
    } else {
      pages_.splice(pages_.begin(), pages_, it->second);
    }
  }
  for (; pages_.size() > most_pages_; pages_.pop_back()) by_worker_.at(pages_.back().worker).erase(pages_.back().key);
}

size_t PrefixAffinity::PagesOn(const std::string& worker, std::span<const PrefixKey> chain) const {
  const auto known = by_worker_.find(worker);
  if (known == by_worker_.end()) return 0;
  size_t pages = 0;
  while (pages < chain.size() && known->second.contains(chain[pages])) ++pages;
  return pages;
}

void PrefixAffinity::Forget(const std::string& worker) {
  const auto known = by_worker_.find(worker);
  if (known == by_worker_.end()) return;
  for (const auto& [key, page] : known->second) pages_.erase(page);
  by_worker_.erase(known);
}

}  // namespace stria
