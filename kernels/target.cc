#include "kernels/target.h"

#include <array>

namespace stria {
namespace {

bool Supported(Target target) {
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  switch (target) {
    case Target::kPortable: return true;
    case Target::kAvx2: return avx2;
    case Target::kAvx512: return avx512;
    case Target::kAvx512Vnni: return avx512 && __builtin_cpu_supports("avx512vnni");
  }
  return false;
}

// Each target runs wherever the next one does, so what is available is a prefix of this list.
constexpr std::array kTargets = {Target::kPortable, Target::kAvx2, Target::kAvx512, Target::kAvx512Vnni};

}  // namespace

std::span<const Target> AvailableTargets() {
  size_t count = 0;
  while (count < kTargets.size() && Supported(kTargets[count])) ++count;
  return {kTargets.data(), count};
}

const char* Name(Target target) {
  switch (target) {
    case Target::kPortable: return "portable";
    case Target::kAvx2: return "avx2";
    case Target::kAvx512: return "avx512";
    case Target::kAvx512Vnni: return "avx512vnni";
  }
  return "?";
}

std::optional<Target> ParseTarget(std::string_view name) {
  for (Target target : kTargets) {
    if (name == Name(target)) return target;
  }
  return std::nullopt;
}

}  // namespace stria
