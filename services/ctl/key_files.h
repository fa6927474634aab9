// The CURVE keys of one deployment, as files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stria {

// Makes `folder` (it may exist, none of the files may) with, for their owner's eyes only, scheduler.key, controller.key and NAME.key for each
// of `workers`; and with the public keys workers.pub, which the two servers read, and servers.pub, which workers read. Gives a text that
// says who needs which file.
absl::StatusOr<std::string> WriteKeyFiles(const std::string& folder, const std::vector<std::string>& workers);

}  // namespace stria
