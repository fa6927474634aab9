// What the scheduler needs of a Kaizen pack (docs/kaizen.md): for which model it is, and the plans that it offers.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "scheduler/kv_composer.h"

namespace stria {

// Of the pack in `folder`. NotFound: no pack.json, or no tensors where it names some. InvalidArgument: another format or version, a field that is
// missing or wrong, tensors whose size or checksum differ, or plans that nothing serves yet. Messages begin with the folder.
absl::StatusOr<PackOffer> ReadPack(const std::string& folder);

}  // namespace stria
