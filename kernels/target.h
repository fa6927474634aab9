// Which instruction set the kernels use: chosen once at start, forced one by one in tests and with --isa.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace stria {

enum class Target { kPortable, kAvx2, kAvx512, kAvx512Vnni };

// Targets that this machine can run, slowest first. Never empty.
std::span<const Target> AvailableTargets();
inline Target BestTarget() { return AvailableTargets().back(); }
const char* Name(Target target);
std::optional<Target> ParseTarget(std::string_view name);

}  // namespace stria
