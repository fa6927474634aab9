#include "services/common/curve.h"

#include <cstdint>
#include <vector>

#include <zmq.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "services/common/bearer.h"

namespace stria {
namespace {

constexpr size_t kTextBytes = 40, kRawBytes = 32;

// The 32 bytes behind a key's text; empty when it is no key.
std::string Raw(const std::string& text) {
  std::string raw(kRawBytes, '\0');
  if (text.size() != kTextBytes) return "";
  return zmq_z85_decode(reinterpret_cast<uint8_t*>(raw.data()), text.c_str()) == nullptr ? "" : raw;
}

}  // namespace

CurvePair NewCurvePair() {
  char public_key[kTextBytes + 1], secret_key[kTextBytes + 1];
  STRIA_CHECK(zmq_curve_keypair(public_key, secret_key) == 0);
  return {public_key, secret_key};
}

absl::StatusOr<std::string> PublicKeyOf(const std::string& secret_key) {
  char public_key[kTextBytes + 1];
  if (Raw(secret_key).empty() || zmq_curve_public(public_key, secret_key.c_str()) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("not a CURVE key, which has ", kTextBytes, " characters of Z85: ", secret_key.size(), " characters"));
  }
  return std::string(public_key);
}

absl::StatusOr<PublicKeys> PublicKeys::Parse(std::string_view text) {
  PublicKeys keys;
  STRIA_RETURN_IF_ERROR(ForEachSecretLine(text, "public key", [&keys](const std::vector<std::string>& words) -> absl::Status {
    if (words.size() != 2) return absl::InvalidArgumentError(absl::StrCat(words.size(), " words; a line is NAME KEY"));
    const std::string raw = Raw(words[1]);
    if (raw.empty()) return absl::InvalidArgumentError(absl::StrCat("the key of ", words[0], " is not ", kTextBytes, " characters of Z85"));
    const auto [it, added] = keys.names_.emplace(raw, words[0]);
    if (!added) return absl::InvalidArgumentError(absl::StrCat("the key is ", it->second, "'s already"));
    keys.newest_[words[0]] = words[1];
    return absl::OkStatus();
  }));
  return keys;
}

absl::StatusOr<std::string> PublicKeys::Of(const std::string& name) const {
  const auto it = newest_.find(name);
  if (it == newest_.end()) return absl::NotFoundError(absl::StrCat("no public key of ", name));
  return it->second;
}

const std::string* PublicKeys::NameOf(std::string_view raw_key) const {
  const auto it = names_.find(raw_key);
  return it == names_.end() ? nullptr : &it->second;
}

}  // namespace stria
