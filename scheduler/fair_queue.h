// Sequences that wait for room, bounded: lower priority numbers first; among equals those that had been running or were passed over
// for want of room; then tenants (API keys) by fair share; then in order of arrival.
//
// Fair share is the virtual token counter of Sheng et al. (Fairness in Serving Large Language Models, OSDI 2024): a tenant's counter
// grows by what it is served, a prompt's tokens once and generated ones twice, over its share. Of the tenants that wait, the one
// with the smallest counter goes first. One that comes back from idling starts at the smallest counter of those that wait, so
// idling saves nothing up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"

namespace stria {

class FairQueue {
 public:
  // `limit` sequences in all, `tenant_limit` of one tenant.
  FairQueue(size_t limit, size_t tenant_limit) : limit_(limit), tenant_limit_(tenant_limit) {}

  void SetShare(const std::string& tenant, double share);  // of 1 otherwise

  // ResourceExhausted with the numbers. Sequences that come back are not asked: they were counted when they came first.
  absl::Status HasRoom(const std::string& tenant, size_t count) const;

  // Ids grow with arrival. `ahead`: of its priority's others.
  void Add(uint64_t id, int32_t priority, const std::string& tenant, bool ahead);
  void MoveAhead(uint64_t id);
  void Remove(uint64_t id);

  // The tenant was served.
  void ChargePrompt(const std::string& tenant, uint64_t tokens) { Charge(tenant, static_cast<double>(tokens)); }
  void ChargeGenerated(const std::string& tenant, uint64_t tokens) { Charge(tenant, 2.0 * static_cast<double>(tokens)); }

  // The first in order, those in `passed` aside.
  std::optional<uint64_t> First(const std::set<uint64_t>& passed = {}) const;

  size_t size() const { return entries_.size(); }
  size_t limit() const { return limit_; }

 private:
  struct Entry {
    int32_t priority;
    std::string tenant;
    bool ahead;
  };
  struct Tenant {
    double counter = 0, share = 1;
    size_t waiting = 0;
  };
  struct Level {  // of one priority
    std::set<uint64_t> ahead;
    std::map<std::string, std::set<uint64_t>> by_tenant;
  };

  void Charge(const std::string& tenant, double cost);
  void Take(uint64_t id, const Entry& entry);

  const size_t limit_, tenant_limit_;
  std::map<uint64_t, Entry> entries_;
  std::map<int32_t, Level> levels_;
  std::map<std::string, Tenant> tenants_;
  double last_counter_ = 0;  // of the tenant that was last charged for a start: where newcomers to an empty queue begin
};

}  // namespace stria
