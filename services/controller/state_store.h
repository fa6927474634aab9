// What the controller must not forget. Every call is synchronous and durable when it returns OK, so a caller that answers or
// sends afterwards never acknowledges what a crash could lose.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "controller/controller.h"

namespace stria {

class StateStore {
 public:
  virtual ~StateStore() = default;

  // Everything, as of the last commit. DataLoss: the content makes no sense.
  virtual absl::StatusOr<ControllerState> Load() = 0;

  virtual absl::Status AppendRevision(const Revision& revision) = 0;
  // A new vector, its flips and the model's state with it, in one transaction.
  virtual absl::Status CommitEpoch(const Publication& publication, const ModelState& after, double unix_seconds) = 0;
  // Evidence that may be a second old after a crash, and the history of the outer loops.
  virtual absl::Status SaveModels(std::span<const ModelState* const> models, std::span<const LoopStep> steps, double unix_seconds) = 0;

  // The newest `limit` of those from revision number `from` on, oldest first.
  virtual absl::StatusOr<std::vector<Revision>> Revisions(uint64_t from, size_t limit) = 0;
  // NotFound names the number.
  virtual absl::StatusOr<Revision> FindRevision(uint64_t number) = 0;
  // The newest `limit`, oldest first.
  virtual absl::StatusOr<std::vector<Flip>> Flips(size_t limit) = 0;
  virtual absl::StatusOr<std::vector<LoopStep>> LoopSteps(size_t limit) = 0;
};

struct OpenedStore {
  std::unique_ptr<StateStore> store;
  ControllerState state;
  std::string damage;  // what was wrong with the file found, and where it was put; empty: nothing
};

struct OpenOptions {
  // A damaged file is renamed to PATH.damaged-UNIXTIME, with its -wal and -shm, and a new one begun; otherwise it is DataLoss.
  bool put_damaged_aside = false;
  // Flips, epochs and steps of the loops are kept up to so many of each; revisions for ever.
  size_t keep_rows = 10'000;
};

// Opens or creates the SQLite file (WAL, synchronous=FULL, held exclusively) and brings an older schema up to date. DataLoss: damaged.
// FailedPrecondition: written by a newer Stria, or in use by another process. In both cases the file is left as it is.
absl::StatusOr<OpenedStore> OpenStateStore(const std::string& path, double unix_seconds, OpenOptions options = {});

}  // namespace stria
