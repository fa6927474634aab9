#include "scheduler/fair_queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace stria {
namespace {

std::optional<uint64_t> FirstOf(const std::set<uint64_t>& ids, const std::set<uint64_t>& passed) {
  for (const uint64_t id : ids) {
    if (!passed.contains(id)) return id;
  }
  return std::nullopt;
}

}  // namespace

void FairQueue::SetShare(const std::string& tenant, double share) {
  STRIA_CHECK(share > 0);
  tenants_[tenant].share = share;
}

absl::Status FairQueue::HasRoom(const std::string& tenant, size_t count) const {
  if (entries_.size() + count > limit_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(entries_.size(), " sequences are waiting, the queue holds ", limit_, "; try again later"));
  }
  const auto it = tenants_.find(tenant);
  const size_t waiting = it == tenants_.end() ? 0 : it->second.waiting;
  if (waiting + count > tenant_limit_) {
    return absl::ResourceExhaustedError(absl::StrCat(waiting, " sequences of this API key are waiting, the queue holds ", tenant_limit_,
                                                     " of one key; try again later"));
  }
  return absl::OkStatus();
}

void FairQueue::Add(uint64_t id, int32_t priority, const std::string& tenant, bool ahead) {
  Tenant& own = tenants_[tenant];
  if (own.waiting == 0) {
    double smallest = last_counter_;
    bool first = true;
    for (const auto& [name, other] : tenants_) {
      if (other.waiting > 0 && (std::exchange(first, false) || other.counter < smallest)) smallest = other.counter;
    }
    own.counter = std::max(own.counter, smallest);
  }
  ++own.waiting;
  entries_.emplace(id, Entry{priority, tenant, ahead});
  Level& level = levels_[priority];
  (ahead ? level.ahead : level.by_tenant[tenant]).insert(id);
}

void FairQueue::Take(uint64_t id, const Entry& entry) {
  const auto level = levels_.find(entry.priority);
  if (entry.ahead) {
    level->second.ahead.erase(id);
  } else {
    const auto of_tenant = level->second.by_tenant.find(entry.tenant);
    of_tenant->second.erase(id);
    if (of_tenant->second.empty()) level->second.by_tenant.erase(of_tenant);
  }
  if (level->second.ahead.empty() && level->second.by_tenant.empty()) levels_.erase(level);
}

void FairQueue::MoveAhead(uint64_t id) {
  Entry& entry = entries_.at(id);
  if (entry.ahead) return;
  Take(id, entry);
  entry.ahead = true;
  levels_[entry.priority].ahead.insert(id);
}

void FairQueue::Remove(uint64_t id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  Take(id, it->second);
  Tenant& tenant = tenants_[it->second.tenant];
  --tenant.waiting;
  last_counter_ = tenant.counter;
  entries_.erase(it);
}

void FairQueue::Charge(const std::string& tenant, double cost) {
  Tenant& own = tenants_[tenant];
  own.counter += cost / own.share;
}

std::optional<uint64_t> FairQueue::First(const std::set<uint64_t>& passed) const {
  for (const auto& [priority, level] : levels_) {
    if (const auto id = FirstOf(level.ahead, passed)) return id;
    std::optional<uint64_t> best;
    double smallest = 0;
    for (const auto& [tenant, ids] : level.by_tenant) {
      const std::optional<uint64_t> id = FirstOf(ids, passed);
      const double counter = tenants_.at(tenant).counter;
      if (!id || (best && (counter > smallest || (counter == smallest && *id > *best)))) continue;
      best = id;
      smallest = counter;
    }
    if (best) return best;
  }
  return std::nullopt;
}

}  // namespace stria
