// CURVE keys of the ZeroMQ links: Z85 text of 40 characters. A process keeps one secret key; its public key follows from it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stria {

struct CurvePair {
  std::string public_key, secret_key;
};

CurvePair NewCurvePair();

// InvalidArgument when it is no secret key; never quotes it.
absl::StatusOr<std::string> PublicKeyOf(const std::string& secret_key);

// Public keys of peers by name: those that a bound socket lets in, or those of the servers that a worker dials.
class PublicKeys {
 public:
  // NAME KEY a line; empty lines and lines that begin with # are skipped, a semicolon ends a line too. A name may have several keys,
  // the old and the new one while keys change. InvalidArgument names the line.
  static absl::StatusOr<PublicKeys> Parse(std::string_view text);

  bool empty() const { return names_.empty(); }
  // The newest (last) key under a name; NotFound names it.
  absl::StatusOr<std::string> Of(const std::string& name) const;
  // Whose key these 32 bytes are; nullptr: nobody's.
  const std::string* NameOf(std::string_view raw_key) const;

 private:
  std::map<std::string, std::string, std::less<>> names_;  // by the raw key of 32 bytes
  std::map<std::string, std::string> newest_;              // Z85 key by name
};

}  // namespace stria
