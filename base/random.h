// A counter-based generator: the draw depends on its key alone, never on how many draws came before,
// so a sequence samples the same tokens whatever runs beside it. Philox4x32-10 (Salmon et al., SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace stria {

// Four 32-bit words for (seed, stream, counter). Pure.
inline std::array<uint32_t, 4> Philox(uint64_t seed, uint64_t stream, uint64_t counter) {
  std::array<uint32_t, 4> x = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * x[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}

// Uniform in [0, 1) with 53 bits, for (seed, stream, counter).
inline double Uniform(uint64_t seed, uint64_t stream, uint64_t counter) {
  const auto x = Philox(seed, stream, counter);
  return static_cast<double>((uint64_t{x[0]} << 21) ^ (x[1] >> 11)) * 0x1p-53;
}

}  // namespace stria
