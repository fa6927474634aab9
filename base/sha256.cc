#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace stria {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  STRIA_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

Sha256& Sha256::Update(const void* data, size_t size) {
  STRIA_CHECK(EVP_DigestUpdate(state_->context, data, size) == 1);
  return *this;
}

Sha256& Sha256::Update(uint64_t number) {
  uint8_t bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(number >> (8 * i));
  return Update(bytes, sizeof(bytes));
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  STRIA_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), nullptr) == 1);
  STRIA_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
  return digest;
}

std::string Hex(const Sha256Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace stria
