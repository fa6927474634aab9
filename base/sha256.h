// SHA-256 (FIPS 180-4) by OpenSSL: names of models, keys of shared prefixes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace stria {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& Update(const void* data, size_t size);
  Sha256& Update(std::string_view text) { return Update(text.data(), text.size()); }
  // Little-endian, whatever the machine.
  Sha256& Update(uint64_t number);

  // Ends this digest and begins the next.
  Sha256Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Hex(const Sha256Digest& digest);

}  // namespace stria
