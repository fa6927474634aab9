// GET /v1/status: the queue, and every worker as the scheduler sees it.
#pragma once

#include <string>

#include "scheduler/scheduler.h"

namespace stria {

std::string StatusJson(const Scheduler& scheduler, MonotonicTime now);

}  // namespace stria
